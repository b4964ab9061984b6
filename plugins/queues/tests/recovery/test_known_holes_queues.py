"""Reports of RocketMQ's users about queues that did not agree with the log; one test per issue.

Numbers refer to apache/rocketmq's issues. Each test creates the fault that the issue
describes, or a similar one, and shows that all messages of the log are found, and no others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.tests.format.handmade import record
from core.tests.recovery.support import crash, log_bytes, recover_small
from core.tests.store.support import SEGMENT, fill, open_small, overwrite
from lakelog import GetStatus, Message, PutResult, Store
from lakelog.errors import CorruptQueue
from lakelog.files.checkpoint import StoreCheckpoint, write_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog_doctor.check import check

FILES = RealFileSystem()
ENTRIES = 20
UNIT_BYTES = 20
FILE_BYTES = ENTRIES * UNIT_BYTES
COUNT = 110
FAR = 1 << 40


def opened(path: Path, **more: Any) -> Store:
    return open_small(path, **{"consume_queue": {"file_entries": ENTRIES}, **more})


def crashed(path: Path, count: int = COUNT) -> list[PutResult]:
    """A store whose owner died before lakelog had synced any queue."""
    with opened(path) as store:
        results = fill(store, count)
    (path / "lakelog" / "queues.json").unlink()
    crash(path)
    return results


def synced_then_crashed(path: Path, synced: int, count: int = COUNT) -> list[PutResult]:
    """The same, but for the first messages, whose units were synced."""
    with opened(path) as store:
        results = fill(store, synced)
    kept = (path / "lakelog" / "queues.json").read_bytes()
    with opened(path) as store:
        results += fill(store, count - synced)
    (path / "lakelog" / "queues.json").write_bytes(kept)
    crash(path)
    return results


def put(store: Store, count: int) -> list[PutResult]:
    """Put messages, and wait until they can be found."""
    results = fill(store, count)
    assert store.wait_dispatched()
    return results


def queue_file(path: Path, number: int) -> Path:
    return path / "consumequeue" / "t" / "0" / f"{number * FILE_BYTES:020d}"


def lose_units(path: Path, first: int) -> None:
    """Remove units from ``first`` on, as if they had never reached the disk."""
    for file in sorted(queue_file(path, 0).parent.iterdir()):
        kept = max(0, first * UNIT_BYTES - int(file.name))
        if kept < FILE_BYTES:
            file.write_bytes(file.read_bytes()[:kept].ljust(FILE_BYTES, b"\x00"))


def cut_log(path: Path, offset: int) -> None:
    """Cut the log at ``offset``, as if the rest had never reached the disk."""
    for segment in sorted((path / "commitlog").iterdir()):
        kept = max(0, offset - int(segment.name))
        if kept < SEGMENT:
            segment.write_bytes(segment.read_bytes()[:kept].ljust(SEGMENT, b"\x00"))


def assert_all_found(store: Store, results: list[PutResult]) -> None:
    """Check that each message is at the queue offset in its record, and that no others exist."""
    assert store.queue_bounds("t", 0) == (0, results[-1].queue_offset + 1)
    units = store.queue_units("t", 0, 0, FAR)
    assert units.offsets.tolist() == [each.physical_offset for each in results]
    assert units.queue_offsets.tolist() == [each.queue_offset for each in results]
    found = store.get("t", 0, 0, len(results)).messages
    assert [each.physical_offset for each in found] == [each.physical_offset for each in results]


@pytest.mark.parametrize(
    ("first", "synced"), [(0, 0), (7, 5), (60, 60), (109, 0), (7, 60), (60, 5)]
)
def test_467_a_message_that_was_not_dispatched_before_the_crash_is_missing_afterwards(
    tmp_path: Path, first: int, synced: int
) -> None:
    """There the units of later messages also were at places that their records did not state."""
    results = synced_then_crashed(tmp_path, synced) if synced else crashed(tmp_path)
    lose_units(tmp_path, first)
    with opened(tmp_path) as store:
        assert_all_found(store, results)
        (new,) = put(store, 1)
        assert new.queue_offset == COUNT
        assert store.get("t", 0, COUNT - 1, 2).messages[-1].physical_offset == new.physical_offset


def test_678_the_checkpoint_claims_units_that_nobody_synced(tmp_path: Path) -> None:
    """There the index advanced the time of queues, and recovery began after the lost units."""
    results = synced_then_crashed(tmp_path, 40)
    late = 9_000_000_000_000
    write_checkpoint(FILES, tmp_path, StoreCheckpoint(late, late, late))
    lose_units(tmp_path, 50)
    with opened(tmp_path) as store:
        assert_all_found(store, results)


def test_1434_the_last_messages_of_a_segment_were_not_dispatched(tmp_path: Path) -> None:
    """There recovery begins with the last segment that the checkpoint proves, and only there."""
    results = synced_then_crashed(tmp_path, 20)
    last = max(each.physical_offset for each in results)
    (first_of_last,) = [
        at for at, each in enumerate(results) if each.physical_offset == last - last % SEGMENT
    ]
    stored_ms = 9_000_000_000_000
    write_checkpoint(FILES, tmp_path, StoreCheckpoint(stored_ms, stored_ms, 0))
    lose_units(tmp_path, first_of_last - 5)
    with opened(tmp_path) as store:
        assert_all_found(store, results)


@pytest.mark.parametrize("new", [3, 40])
def test_495_units_of_a_log_that_was_cut_come_back_after_a_second_crash(
    tmp_path: Path, new: int
) -> None:
    """There truncation only moved a position: after new units, the old ones were valid again."""
    results = crashed(tmp_path)
    cut_log(tmp_path, results[50].physical_offset)
    with opened(tmp_path) as store:
        assert_all_found(store, results[:50])
        after = sorted(path for path in queue_file(tmp_path, 0).parent.iterdir())
        left = b"".join(path.read_bytes() for path in after)[50 * UNIT_BYTES :]
        assert left == bytes(len(left))
        more = put(store, new)
    (tmp_path / "lakelog" / "queues.json").unlink()
    crash(tmp_path)
    with opened(tmp_path) as store:
        assert_all_found(store, results[:50] + more)


@pytest.mark.parametrize(("left", "end"), [("clean", 105), ("abort", 70)])
def test_2571_queues_reach_further_than_the_log(tmp_path: Path, left: str, end: int) -> None:
    results = crashed(tmp_path) if left == "abort" else synced_then_crashed(tmp_path, COUNT)
    cut_log(tmp_path, results[end].physical_offset)
    if left == "clean":
        (tmp_path / "abort").unlink()
    with opened(tmp_path) as store:
        assert_all_found(store, results[:end])
        assert store.get("t", 0, end).status is GetStatus.OFFSET_OVERFLOW_ONE
        assert store.get("t", 0, end + 1).status is GetStatus.OFFSET_OVERFLOW_BADLY
        assert put(store, 1)[0].queue_offset == end


@pytest.mark.parametrize("length", [0, FILE_BYTES])
@pytest.mark.parametrize(("left", "listed"), [("clean", True), ("abort", True), ("abort", False)])
def test_10108_the_last_file_of_a_queue_is_empty(
    tmp_path: Path, length: int, left: str, listed: bool
) -> None:
    """There the store did not start (9728 too): its file had no unit to read."""
    results = synced_then_crashed(tmp_path, 60, 100) if listed else crashed(tmp_path, 100)
    if left == "clean":
        (tmp_path / "abort").unlink()
    queue_file(tmp_path, 5).write_bytes(bytes(length))
    with opened(tmp_path) as store:
        assert_all_found(store, results)
        results += put(store, 3)
        assert_all_found(store, results)
    files = list(queue_file(tmp_path, 0).parent.iterdir())
    assert {each.stat().st_size for each in files} == {FILE_BYTES}
    assert not (tmp_path / "lakelog" / "quarantine").exists()
    with opened(tmp_path) as store:
        assert_all_found(store, results)


# --- other faults of disks and operators ---


@pytest.mark.parametrize("left", ["clean", "abort"])
@pytest.mark.parametrize("by", ["lakelog", "another"])
@pytest.mark.parametrize("lost", [0, 2, 5, None])
def test_a_file_or_the_folder_that_somebody_deleted_is_built_again(
    tmp_path: Path, left: str, by: str, lost: int | None
) -> None:
    results = synced_then_crashed(tmp_path, 60)
    if left == "clean":
        (tmp_path / "abort").unlink()
    if by == "another":  # RocketMQ keeps no list
        (tmp_path / "lakelog" / "queues.json").unlink()
    for path in queue_file(tmp_path, 0).parent.glob("*"):
        if lost is None or path == queue_file(tmp_path, lost):
            path.unlink()
    if lost is None:
        queue_file(tmp_path, 0).parent.rmdir()
    with opened(tmp_path) as store:
        assert_all_found(store, results)


@pytest.mark.parametrize("unit", [bytes(20), b"\xff" * 20, bytes(6) + b"\x03\xe8" + b"\x01" * 12])
def test_zeros_and_garbage_among_the_units_are_built_again(tmp_path: Path, unit: bytes) -> None:
    results = synced_then_crashed(tmp_path, 60)
    for at in (0, 45, 108):
        file = queue_file(tmp_path, at // ENTRIES)
        data = file.read_bytes()
        place = at % ENTRIES * UNIT_BYTES
        file.write_bytes(data[:place] + unit + data[place + UNIT_BYTES :])
        with opened(tmp_path) as store:
            assert_all_found(store, results)
        crash(tmp_path)


@pytest.mark.parametrize("left", ["clean", "abort"])
@pytest.mark.parametrize(
    ("length", "number"), [(1, 0), (FILE_BYTES - 20, 3), (FILE_BYTES + 20, 5), (100, 5)]
)
def test_one_file_of_a_wrong_length_is_set_aside_and_built_again(
    tmp_path: Path, left: str, length: int, number: int
) -> None:
    results = crashed(tmp_path)
    if left == "clean":
        (tmp_path / "abort").unlink()
    file = queue_file(tmp_path, number)
    odd = file.read_bytes().ljust(length, b"\x01")[:length]
    file.write_bytes(odd)
    with opened(tmp_path) as store:
        assert_all_found(store, results)
    kept = [path.read_bytes() for path in (tmp_path / "lakelog" / "quarantine").iterdir()]
    assert odd in kept


@pytest.mark.parametrize("kept", [True, False])
def test_the_only_file_of_a_wrong_length(tmp_path: Path, kept: bool) -> None:
    """It counts as damaged if lakelog has recorded the setting; otherwise this is not known."""
    results = crashed(tmp_path, 10) if not kept else synced_then_crashed(tmp_path, 5, 10)
    file = queue_file(tmp_path, 0)
    file.write_bytes(file.read_bytes()[:-UNIT_BYTES])
    if kept:
        with opened(tmp_path) as store:
            assert_all_found(store, results)
    else:
        with pytest.raises(CorruptQueue, match="file_entries requires 400"):
            opened(tmp_path)


def test_files_that_other_settings_made_stay_as_they_are(tmp_path: Path) -> None:
    results = crashed(tmp_path)
    log = log_bytes(tmp_path)
    for entries in (7, 21):
        with pytest.raises(CorruptQueue, match="restore the value they were made with"):
            opened(tmp_path, consume_queue={"file_entries": entries})
    assert not (tmp_path / "lakelog" / "quarantine").exists()
    assert log_bytes(tmp_path) == log
    with opened(tmp_path) as store:
        assert_all_found(store, results)


# --- records that were damaged before they had units ---


def test_behind_damage_units_stand_where_their_records_say(tmp_path: Path) -> None:
    """There (and in lakelog before) the units of all later records moved up by one."""
    results = synced_then_crashed(tmp_path, 60)
    lose_units(tmp_path, 60)
    for lost in (results[70], results[71], results[90]):
        segment = tmp_path / "commitlog" / f"{lost.physical_offset // SEGMENT * SEGMENT:020d}"
        data = bytearray(segment.read_bytes())
        data[lost.end_offset % SEGMENT - 100] ^= 1
        segment.write_bytes(data)
    whole = [each for at, each in enumerate(results) if at not in (70, 71, 90)]
    with opened(tmp_path) as store:
        units = store.queue_units("t", 0, 0, FAR)
        assert units.queue_offsets.tolist() == [each.queue_offset for each in whole]
        assert units.offsets.tolist() == [each.physical_offset for each in whole]
        assert store.queue_bounds("t", 0) == (0, COUNT)
        assert read_on(store, 3) == [each.physical_offset for each in whole]
        assert store.get("t", 0, 70, 1).messages[0].queue_offset == 72
        assert put(store, 1)[0].queue_offset == COUNT
        group = store.consumer("g", "t", start="earliest")
        polled = [each.queue_offset for each in group.poll(200)]
        assert polled == [*(each.queue_offset for each in whole), COUNT]
    with opened(tmp_path, mode="read") as store:
        assert read_on(store, 50) == [each.physical_offset for each in whole] + [
            store.get("t", 0, COUNT).messages[0].physical_offset
        ]


def read_on(store: Store, count: int) -> list[int]:
    """Read all of a queue like a consumer without a group."""
    found, at = [], 0
    for _ in range(COUNT + 10):
        result = store.get("t", 0, at, count)
        found += [each.physical_offset for each in result.messages]
        assert result.next_offset >= at
        if result.next_offset == at:
            return found
        at = result.next_offset
    raise AssertionError("it goes on for ever")


def test_a_topic_that_rocketmq_deleted_and_made_again_keeps_its_queue(tmp_path: Path) -> None:
    """Its offsets begin at 0 again, without a tombstone; the queue is that of the new topic."""
    with opened(tmp_path) as store:
        old = fill(store, 30)
    for path in (tmp_path / "consumequeue" / "t" / "0").iterdir():
        path.unlink()
    (tmp_path / "consumequeue" / "t" / "0").rmdir()
    end = old[-1].end_offset
    fresh, data = [], b""
    for number in range(5):
        fresh.append(end + len(data))
        data += record("t", b"", b"x", number, fresh[-1])
    segment = tmp_path / "commitlog" / f"{end // SEGMENT * SEGMENT:020d}"
    content = bytearray(segment.read_bytes())
    content[end % SEGMENT : end % SEGMENT + len(data)] = data
    assert len(content) == SEGMENT
    segment.write_bytes(content)
    unit = [
        place.to_bytes(8, "big") + (len(data) // 5).to_bytes(4, "big") + bytes(8) for place in fresh
    ]
    queue_file(tmp_path, 0).parent.mkdir(parents=True)
    queue_file(tmp_path, 0).write_bytes(b"".join(unit).ljust(FILE_BYTES, b"\x00"))
    (tmp_path / "lakelog" / "queues.json").unlink()
    with opened(tmp_path) as store:
        assert store.queue_units("t", 0, 0, FAR).offsets.tolist() == fresh
    # Without its queue they cannot be distinguished: all are found, the new ones after the old.
    for path in (tmp_path / "consumequeue" / "t" / "0").iterdir():
        path.unlink()
    with opened(tmp_path) as store:
        found = store.queue_units("t", 0, 0, FAR).offsets.tolist()
        assert found == [each.physical_offset for each in old] + fresh


def test_little_is_read_again_after_a_crash(tmp_path: Path) -> None:
    results = synced_then_crashed(tmp_path, 100)
    with opened(tmp_path) as store:
        assert store.recovery is not None
        assert store.recovery.dispatched_from == results[99].end_offset
        assert_all_found(store, results)


def test_what_was_synced_of_another_log_proves_nothing(tmp_path: Path) -> None:
    """RocketMQ cut the log before the mark and continued, and a crash lost its units."""
    results = synced_then_crashed(tmp_path, 100)
    kept = (tmp_path / "lakelog" / "queues.json").read_bytes()
    cut_log(tmp_path, results[50].physical_offset)
    with opened(tmp_path) as store:
        more = [store.put(Message("t", b"n" * 350, queue_id=0)) for _ in range(60)]
    (tmp_path / "lakelog" / "queues.json").write_bytes(kept)
    crash(tmp_path)
    for number in (2, 3):
        queue_file(tmp_path, number).write_bytes(bytes(FILE_BYTES))
    with opened(tmp_path) as store:
        assert store.recovery is not None
        assert store.recovery.dispatched_from == 0
        assert_all_found(store, results[:50] + more)


# --- a stated queue offset has no checksum: a flipped bit must not displace its queue ---


TURNS = 300
QUEUE_OFFSET = 20


def crashed_by_turns(path: Path) -> list[PutResult]:
    """A store with two queues, filled by turns, whose owner died."""
    with open_small(path) as store:
        results = [
            store.put(Message("t", b"%06d" % each * 10, queue_id=each % 2)) for each in range(TURNS)
        ]
    crash(path)
    return results


def flip(path: Path, result: PutResult, bit: int) -> None:
    """Flip a bit of the stated queue offset."""
    stated = result.queue_offset ^ 1 << bit
    overwrite(path, result.physical_offset + QUEUE_OFFSET, stated.to_bytes(8))


@pytest.mark.sample(8)
@pytest.mark.parametrize("bit", [40, 63, 20])
@pytest.mark.parametrize("which", [150, 0, TURNS - 2, TURNS - 1])
@pytest.mark.parametrize("kept", [True, False])
def test_a_flipped_bit_raises_no_queue_and_is_told(
    tmp_path: Path, bit: int, which: int, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    results = crashed_by_turns(tmp_path)
    if not kept:
        (tmp_path / "lakelog" / "queues.json").unlink()
    flip(tmp_path, results[which], bit)
    with open_small(tmp_path) as store:
        for each in range(3):
            put = store.put(Message("t", b"x", queue_id=which % 2))
            assert put.queue_offset == TURNS // 2 + each
    found = list(check(tmp_path, index=False, plugins=[]))
    assert [each.what for each in found] == ["the record has another queue offset than its unit"]
    assert f"queue offset {which // 2}" in found[0].expected
    assert str(results[which].physical_offset) in found[0].found
    if which < TURNS - 2 and not kept:
        assert "has an impossible queue offset" in caplog.text


def test_a_recovery_says_so_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    results = crashed_by_turns(tmp_path)
    (tmp_path / "lakelog" / "queues.json").unlink()
    flip(tmp_path, results[150], 40)
    recover_small(tmp_path)
    assert f"the record at {results[150].physical_offset} has an imp" in caplog.text
    assert results[150].physical_offset > SEGMENT
