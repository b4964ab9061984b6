"""How much of the disk is read: next to nothing by the driver, and by tasks only their runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lakelog
from lakelog import Message
from lakelog.files.filesystem import RealFile
from lakelog_lake.log.wanted import NumberSpan
from lakelog_lake.reading.options import Limit
from plugins.lake.tests.stores import open_small
from plugins.spark.tests.reading import Rows, offsets, read, reader

SEGMENT = 4 << 20
LOG_BYTES = 5 * SEGMENT
RARE_EVERY = 2000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five segments; one message of 2000 is of a topic of its own."""
    path = tmp_path_factory.mktemp("reads") / "store"
    body = bytes(900)
    with open_small(path, segment_size_bytes=SEGMENT) as made:
        for start in range(0, 20_000, 1000):
            batch = []
            for at in range(start, start + 1000):
                topic = "rare" if at % RARE_EVERY == 7 else "usual"
                batch.append(Message(topic, body, keys=f"key-{at}", queue_id=at % 4))
            made.put_batch(batch)
    return path


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Bytes read so far, by the folder of the store directory they stand in."""
    read: dict[str, int] = {}
    whole = RealFile.read_at

    def read_at(self: RealFile, position: int, length: int) -> bytes:
        data = whole(self, position, length)
        folder = _folder(self.path)
        read[folder] = read.get(folder, 0) + len(data)
        return data

    with monkeypatch.context() as patched:
        patched.setattr(RealFile, "read_at", read_at)
        yield read


def _folder(path: Path) -> str:
    known = ("commitlog", "consumequeue", "index")
    return next((each for each in known if each in path.parts), "other")


def test_a_key_is_found_by_the_index(store: Path) -> None:
    parts = reader(store, key="key-777").partitions()
    assert [len(each.value.places or ()) for each in parts] == [1]
    (row,) = read(store, key="key-777")
    assert row["keys"] == ["key-777"]
    assert read(store, key="no-such-key") == []


def test_no_more_is_read_than_it_takes(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lakelog.open(store, mode="read") as opened:
        end = opened.max_offset

    def read_rows(most: float, limits: dict[str, Limit] | None = None, /, **given: str) -> Rows:
        with counted(monkeypatch) as read_bytes:
            rows = read(store, limits, **given)
        assert sum(read_bytes.values()) < most * end
        return rows

    made = reader(store, max_partition_bytes="1m")
    with counted(monkeypatch) as of_driver:
        assert len(made.partitions()) >= LOG_BYTES >> 20
    assert 0 < sum(of_driver.values()) < end / 100
    assert len(read_rows(1.1, max_partition_bytes="1m")) == 20_000
    rare = read_rows(0.01, {"topic": frozenset({"rare"})})
    assert [row["topic"] for row in rare] == ["rare"] * 10
    low = end - 100_000
    late = offsets(read_rows(0.5, {"physical_offset": NumberSpan(low=low)}))
    assert late[0] >= low > late[0] - 2000
    place = {"start": '{"usual": {"1": 4000}}', "end": '{"usual": {"1": 4010}}'}
    some = read_rows(0.05, queues="usual/1", **place)
    assert [row["queue_offset"] for row in some] == list(range(4000, 4010))
