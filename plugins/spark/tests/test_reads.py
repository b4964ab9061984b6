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
from plugins.lake.tests.stores import open_small
from plugins.spark.tests.reading import offsets, read, reader, rows_of

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
            made.put_batch(
                [
                    Message(
                        "rare" if at % RARE_EVERY == 7 else "usual",
                        body,
                        keys=f"key-{at}",
                        queue_id=at % 4,
                    )
                    for at in range(start, start + 1000)
                ]
            )
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


def log_bytes(path: Path) -> int:
    with lakelog.open(path, mode="read") as opened:
        return opened.max_offset


def test_the_driver_reads_under_one_percent(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(monkeypatch) as read_bytes:
        parts = reader(store, max_partition_bytes="1m").partitions()
    assert len(parts) >= LOG_BYTES >> 20
    assert 0 < sum(read_bytes.values()) < log_bytes(store) / 100


def test_tasks_read_little_more_than_their_runs(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = reader(store, max_partition_bytes="1m")
    parts = made.partitions()
    with counted(monkeypatch) as read_bytes:
        rows = rows_of(made, parts)
    assert len(rows) == 20_000
    assert sum(read_bytes.values()) < 1.1 * log_bytes(store)


def test_a_small_topic_is_read_by_its_queues(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(monkeypatch) as read_bytes:
        rows = read(store, {"topic": frozenset({"rare"})})
    assert len(rows) == 10
    assert {row["topic"] for row in rows} == {"rare"}
    assert sum(read_bytes.values()) < log_bytes(store) / 100


def test_a_place_is_read_from_there_on(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(monkeypatch) as read_bytes:
        low = log_bytes(store) - 100_000
        rows = read(store, {"physical_offset": NumberSpan(low=low)})
    assert offsets(rows)[0] >= low > offsets(rows)[0] - 2000
    assert read_bytes["commitlog"] < log_bytes(store) / 2


def test_the_queues_offsets_of_one_queue(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"start": '{"usual": {"1": 4000}}', "end": '{"usual": {"1": 4010}}'}
    with counted(monkeypatch) as read_bytes:
        rows = read(store, queues="usual/1", **place)
    assert [row["queue_offset"] for row in rows] == list(range(4000, 4010))
    assert sum(read_bytes.values()) < log_bytes(store) / 20


def test_a_key_is_found_by_the_index(store: Path) -> None:
    parts = reader(store, key="key-777").partitions()
    assert [len(each.value.places or ()) for each in parts] == [1]
    (row,) = read(store, key="key-777")
    assert row["keys"] == ["key-777"]
    assert read(store, key="no-such-key") == []
