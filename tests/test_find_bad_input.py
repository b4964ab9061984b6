"""Questions that have no answer, and files that are damaged: clear answers, and a rebuild mends."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from lakelog import GetStatus, Message, Store
from lakelog_doctor.rebuild import rebuild

COUNT: Final = 50
SETTINGS: Final[dict[str, Any]] = {
    "segment_size_bytes": 65536,
    "flush": "none",
    "consume-queue": {"file_entries": 100},
    "hash-index": {"slots": 3, "entries": 400},
}
UNIT: Final = struct.Struct(">qiq")
INDEX_HEADER_BYTES: Final = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store: one queue of fifty messages, each with a key of its own and a shared one."""
    with lakelog.open(tmp_path / "store", **SETTINGS) as store:
        for at in range(COUNT):
            store.put(Message("t", b"%d" % at, keys=[f"k{at}", "all"], tags="T", queue_id=0))
    return tmp_path / "store"


def opened(path: Path, mode: Any) -> Store:
    return lakelog.open(path, mode=mode, **SETTINGS)


def offsets(store: Store, start: int = 0) -> list[int]:
    return [each.queue_offset for each in store.get("t", 0, start, 1000).messages]


@pytest.mark.parametrize("mode", ["write", "read"])
def test_places_that_are_not_there(path: Path, mode: str) -> None:
    with opened(path, mode) as store:
        assert store.get("nobody", 0, 0).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
        assert store.get("t", 7, 0).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
        with pytest.raises(ValueError, match="queue_id is -1"):
            store.get("t", -1, 0)
        low, one, badly = (store.get("t", 0, at) for at in (-5, COUNT, COUNT + 9))
        assert (low.status, low.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 0)
        assert (one.status, one.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, COUNT)
        assert (badly.status, badly.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, COUNT)
        assert store.offset_by_time("t", 0, 0) == 0
        assert store.offset_by_time("t", 0, 1 << 46) == COUNT
        assert store.offset_by_time("nobody", 0, 0) == 0
        assert store.earliest_time("nobody", 0) is None
        assert store.query("t", "no-such-key") == []
        assert store.query("nobody", "k1") == []
        assert store.queue_bounds("t", 1) is None


@pytest.mark.parametrize(
    "unit", [(1 << 40, 100, 0), (0, 0, 0), (0, -1, 0), (13, 100, 0), (0, 1 << 30, 0)]
)
def test_a_corrupt_unit_is_passed_over_and_a_rebuild_mends_it(
    path: Path, unit: tuple[int, int, int]
) -> None:
    file = path / "consumequeue" / "t" / "0" / "00000000000000000000"
    good = file.read_bytes()
    with file.open("r+b") as damaged:
        damaged.seek(10 * UNIT.size)
        damaged.write(UNIT.pack(*unit))
    before = file.read_bytes()
    with opened(path, "read") as store:
        found = offsets(store)
        assert set(found) <= set(range(COUNT))
        assert found[:10] == list(range(10))
        assert found == sorted(found)
    assert file.read_bytes() == before
    assert rebuild(path, index=False, **SETTINGS).records == COUNT
    assert file.read_bytes() == good
    with opened(path, "write") as store:
        assert offsets(store) == list(range(COUNT))


def damage_header(data: bytearray) -> None:
    struct.pack_into(">ii", data, 32, -7, 1 << 30)


def make_a_cycle(data: bytearray) -> None:
    """The first entry of the longest chain goes back to the last one."""
    entries_at = INDEX_HEADER_BYTES + 4 * 3
    for slot in range(3):
        last = struct.unpack_from(">i", data, INDEX_HEADER_BYTES + 4 * slot)[0]
        entry = last
        while previous := struct.unpack_from(">i", data, entries_at + 20 * entry + 16)[0]:
            entry = previous
        struct.pack_into(">i", data, entries_at + 20 * entry + 16, last)


@pytest.mark.parametrize("damage", [damage_header, make_a_cycle])
@pytest.mark.parametrize("mode", ["write", "read"])
def test_a_damaged_index_ends_is_reported_and_rebuilt(
    path: Path, damage: Any, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    (file,) = (path / "index").iterdir()
    good = file.read_bytes()
    data = bytearray(good)
    damage(data)
    file.write_bytes(data)
    with opened(path, mode) as store:
        found = store.query("t", "all", max_messages=1000)
        assert len(found) <= COUNT
    assert "index" in caplog.text
    assert rebuild(path, queues=False, **SETTINGS).records == COUNT
    (file,) = (path / "index").iterdir()
    assert file.read_bytes() == good
    with opened(path, mode) as store:
        assert len(store.query("t", "all", max_messages=1000)) == COUNT
        assert [bytes(each.body) for each in store.query("t", "k7")] == [b"7"]


def test_a_torn_offsets_file_is_read_from_its_backup(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(path, "write") as store, store.consumer("g", "t", start="earliest") as consumer:
        consumer.poll(5)
        consumer.commit()
        consumer.poll(5)
        consumer.commit()
    file = path / "config" / "consumerOffset.json"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with opened(path, "write") as store, store.consumer("g", "t") as consumer:
        assert "consumerOffset.json.bak" in caplog.text
        assert [each.queue_offset for each in consumer.poll(1)] == [5]


def test_a_removed_topic_stays_away_until_a_rebuild(path: Path) -> None:
    with opened(path, "write") as store:
        store.delete_topic("t")
        assert store.topics() == []
        assert store.get("t", 0, 0).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
        assert len(list(store.scan())) == COUNT
    for mode in ("write", "read"):
        with opened(path, mode) as store:
            assert store.topics() == []
    with opened(path, "write") as store:
        assert store.put(Message("t", b"new", queue_id=0)).queue_offset == COUNT
        assert store.wait_dispatched()
        assert store.queue_bounds("t", 0) == (COUNT, COUNT + 1)
    rebuild(path, **SETTINGS)
    with opened(path, "write") as store:
        assert offsets(store) == list(range(COUNT + 1))


def test_topics_without_messages_can_be_removed(path: Path) -> None:
    with opened(path, "write") as store:
        assert store.delete_unused_topics() == []
        for _ in range(3):
            store.put(Message("u", bytes(30_000)))
    (path / "commitlog" / "00000000000000000000").unlink()
    with opened(path, "write") as store:
        assert store.queue_bounds("t", 0) == (COUNT, COUNT)
        assert store.delete_unused_topics() == ["t"]
        assert store.topics() == ["u"]


def remove_topic(path: Path) -> None:
    shutil.rmtree(path / "consumequeue" / "t")


def remove_queue(path: Path) -> None:
    shutil.rmtree(path / "consumequeue" / "t" / "0")


def remove_last_file(path: Path) -> None:
    (path / "consumequeue" / "t" / "0" / "00000000000000000800").unlink()


def zero_last_file(path: Path) -> None:
    (path / "consumequeue" / "t" / "0" / "00000000000000000800").write_bytes(bytes(800))


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize("harm", [remove_topic, remove_queue, remove_last_file, zero_last_file])
def test_what_a_queue_lost_while_closed_is_completed(tmp_path: Path, harm: Any, mode: Any) -> None:
    path = tmp_path / "store"
    settings = SETTINGS | {"consume-queue": {"file_entries": 40}}
    with lakelog.open(path, **settings) as store:
        for at in range(COUNT):
            store.put(Message("t", b"%d" % at, queue_id=0))
            store.put(Message("u", b"%d" % at, queue_id=at % 3))
    harm(path)
    with lakelog.open(path, mode=mode, **settings) as store:
        assert offsets(store) == list(range(COUNT))
        assert store.queue_bounds("u", 1) == (0, 17)
