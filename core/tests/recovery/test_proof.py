"""What stands behind a gap belongs to the log only if something proves it.

The directories are as the real store leaves them: it recovers, which forgets where the log ended
and erases nothing; it writes less than it cut, records of the same size; and the last is torn.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import attrs
import pytest

from core.tests.recovery.support import (
    a_crashed_store,
    crash,
    flip,
    kept_lines,
    log_bytes,
    offsets,
    quarantine,
    recover_small,
    starts,
    store_at,
    tear,
    zero,
)
from core.tests.store.support import SEGMENT, bodies, fill, open_small, overwrite, read_small
from lakelog import Message, PutResult
from lakelog.files.checkpoint import StoreCheckpoint, read_checkpoint, write_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.hooks.kinds import StoreSettings
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.apply import apply_plan
from lakelog.recovery.examine import examine
from lakelog_testing.samples import copy_store

pytestmark = pytest.mark.both_ways

LATER_MS = 9_000_000_000_000


@attrs.frozen
class Left:
    """What the real store left: ``kept`` it acknowledged, ``old`` it cut and did not erase."""

    path: Path
    kept: list[PutResult]
    new: list[PutResult]
    old: list[PutResult]


@pytest.fixture
def left(tmp_path: Path) -> Left:
    """Ten records, cut behind the fifth; two new ones, the second torn; four old ones behind."""
    path = tmp_path / "store"
    with open_small(path) as store:
        results = fill(store, 5)
    copy_store(path, tmp_path / "short")
    with open_small(path) as store:
        old = fill(store, 5)
    with open_small(tmp_path / "short") as store:
        new = [store.put(Message("t", b"n" * 400, queue_id=0)) for _ in range(2)]
    for each in new:
        here = log_bytes(tmp_path / "short")[each.physical_offset : each.end_offset]
        overwrite(path, each.physical_offset, here)
    for each in old[2:]:
        store_at(path, each, 1_000)
    tear(path, new[1])
    checkpoint = read_checkpoint(RealFileSystem(), path)._replace(confirm_offset=0)
    write_checkpoint(RealFileSystem(), path, checkpoint)
    crash(path)
    return Left(path, results, new, old)


def test_old_records_behind_a_torn_one_do_not_come_back(left: Left) -> None:
    """Their offsets, checksums and queue units are all as they should be; only they are older."""
    report = recover_small(left.path)
    assert report.end_offset == left.new[0].end_offset
    (cut,) = report.cut
    assert left.old[-1].physical_offset < cut.end_offset <= left.old[-1].end_offset
    assert "3 whole records in it are not proved" in cut.reason
    assert (left.path / "lakelog" / "quarantine").is_dir()
    assert len(quarantine(left.path)) == 1
    with open_small(left.path) as store:
        assert offsets(store) == starts([*left.kept, left.new[0]])
        assert [each.physical_offset for each in store.get("t", 0, 0).messages] == offsets(store)
        assert store.put(Message("t", b"next", queue_id=0)).queue_offset == 6
    crash(left.path)
    with open_small(left.path) as store:
        assert bodies(store.scan())[-1] == b"next"
        assert len(offsets(store)) == 7


def test_the_checkpoint_proves_them(left: Left) -> None:
    files = RealFileSystem()
    confirmed = left.old[3].physical_offset + 1
    store_at(left.path, left.old[4], 500)
    checkpoint = read_checkpoint(files, left.path)._replace(
        confirm_offset=confirmed,
        physic_timestamp_ms=left.new[0].store_timestamp_ms,
    )
    write_checkpoint(files, left.path, checkpoint)
    report = recover_small(left.path)
    assert report.end_offset == left.old[3].end_offset
    assert [(each.offset, each.end_offset) for each in report.damage] == [
        (left.new[1].physical_offset, left.new[1].end_offset)
    ]
    with open_small(left.path) as store:  # readers go by what the recovery noted
        proved = [*left.kept, left.new[0], *left.old[2:4]]
        assert offsets(store) == starts(proved)
        assert [each.physical_offset for each in store.get("t", 0, 0).messages] == starts(proved)


def test_a_checkpoint_from_before_the_cut_does_not(left: Left) -> None:
    """The real store lowers it in memory only; it does not know of what was written since."""
    files = RealFileSystem()
    checkpoint = read_checkpoint(files, left.path)._replace(
        confirm_offset=left.old[3].end_offset,
        physic_timestamp_ms=left.new[0].store_timestamp_ms - 1,
        logics_timestamp_ms=0,
    )
    write_checkpoint(files, left.path, checkpoint)
    report = recover_small(left.path)
    assert report.end_offset == left.new[0].end_offset
    assert "3 whole records in it are not proved" in report.cut[0].reason


def test_readers_pass_over_what_nothing_proves(left: Left) -> None:
    """An old record stands between damage and one that the checkpoint vouches for.

    It stays in the log, and nobody gets it any more; it may be all there is of a message.
    """
    later = left.old[-1]
    store_at(left.path, later, LATER_MS)
    _vouch_for_all(left.path)
    before = log_bytes(left.path)
    report = recover_small(left.path)
    assert report.end_offset == later.end_offset
    (damage,) = report.damage
    assert damage.unproven
    assert damage.offset == left.new[1].physical_offset
    assert damage.end_offset == later.physical_offset
    assert list(quarantine(left.path).values()) == [before[damage.offset : damage.end_offset]]
    (line,) = kept_lines(left.path)
    assert (line["offset"], line["position"]) == (damage.offset, damage.offset % SEGMENT)
    assert "stays in the log" in line["reason"]
    with open_small(left.path) as store:
        proved = starts([*left.kept, left.new[0], later])
        assert offsets(store) == proved
        met: list[object] = []
        with read_small(left.path) as reader:
            found = [each.physical_offset for each in reader.scan(on_damage=met.append)]
        assert found == proved
        assert len(met) == 1
    crash(left.path)
    recover_small(left.path)
    assert len(quarantine(left.path)) == len(kept_lines(left.path)) == 1, "it is kept once"


def test_what_reaches_over_the_end_of_a_segment_is_kept_in_two(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    second = next(at for at, each in enumerate(results) if each.physical_offset == SEGMENT)
    for each in (results[second - 1], results[second + 1]):
        zero(tmp_path, each.physical_offset, each.end_offset)
    zero(tmp_path, results[second - 1].end_offset, SEGMENT)
    store_at(tmp_path, results[second], 1_000)
    _forget_all_but_the_log(tmp_path)
    _vouch_for_all(tmp_path)
    before = log_bytes(tmp_path)
    (damage,) = recover_small(tmp_path).damage
    assert damage.unproven
    assert damage.offset < SEGMENT < results[second].end_offset < damage.end_offset
    assert sorted(quarantine(tmp_path).values(), key=len) == sorted(
        (before[damage.offset : SEGMENT], before[SEGMENT : damage.end_offset]), key=len
    )


def test_what_was_written_since_is_judged_anew(left: Left) -> None:
    """The real store cut the log at the damage, and went on there."""
    store_at(left.path, left.old[-1], LATER_MS)
    _vouch_for_all(left.path)
    recover_small(left.path)
    torn, other = left.new[1], left.path.parent / "other"
    with open_small(other) as store:
        fill(store, 6)
        store.put(Message("t", b"other".ljust(400), queue_id=0))
    again = log_bytes(other)[torn.physical_offset : torn.end_offset]
    overwrite(left.path, torn.physical_offset, again)
    with open_small(left.path) as store:
        assert torn.physical_offset in offsets(store)


@pytest.mark.parametrize("queues", [True, False])
def test_without_the_checkpoint_queue_offsets_prove_it(queues: bool, tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    flip(tmp_path, results[60])
    (tmp_path / "checkpoint").unlink()
    if not queues:
        shutil.rmtree(tmp_path / "consumequeue")
        (tmp_path / "lakelog" / "queues.json").unlink()
    assert recover_small(tmp_path).end_offset == results[-1].end_offset


def test_what_a_recovery_has_kept_needs_no_proof_again(tmp_path: Path) -> None:
    """A queue's unit alone proved it, which was not durable yet; the next crash took that away."""
    results = a_crashed_store(tmp_path, 10)
    _vouch_for_all(tmp_path)
    (tmp_path / "lakelog" / "queues.json").unlink(missing_ok=True)
    kept = results[5]
    flip(tmp_path, results[4])
    state_queue_offset(tmp_path, kept, 12)
    for each in results[6:]:
        tear(tmp_path, each)
    (queue,) = (tmp_path / "consumequeue" / "t" / "0").iterdir()
    units = bytearray(queue.read_bytes())
    struct.pack_into(">qiq", units, 12 * 20, kept.physical_offset, kept.size, 0)
    queue.write_bytes(units)
    core = StoreSettings(segment_size_bytes=SEGMENT)
    directory = StoreDirectory.of(RealFileSystem(), tmp_path, core)
    apply_plan(directory, examine(directory, core), SEGMENT)  # and before anything else it dies
    shutil.rmtree(tmp_path / "consumequeue")
    report = recover_small(tmp_path)
    assert (report.end_offset, report.cut) == (kept.end_offset, ())


def test_a_queue_offset_that_cannot_be_proves_nothing(tmp_path: Path) -> None:
    """Behind a gap of one record, its queue cannot have gone on by seven."""
    results = a_crashed_store(tmp_path, 10)
    _forget_all_but_the_log(tmp_path)
    flip(tmp_path, results[4])
    state_queue_offset(tmp_path, results[5], 12)
    for each in results[6:]:
        tear(tmp_path, each)
    report = recover_small(tmp_path)
    assert report.end_offset == results[3].end_offset
    assert "1 whole records" in report.cut[0].reason


def test_a_whole_queue_offset_that_fits_the_gap_does(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path, 10)
    _forget_all_but_the_log(tmp_path)
    flip(tmp_path, results[4])
    for each in results[6:]:
        tear(tmp_path, each)
    assert recover_small(tmp_path).end_offset == results[5].end_offset


def test_a_clock_that_was_set_back_ends_no_log(tmp_path: Path) -> None:
    """Nothing is between the records, and the queue goes on: they are no leftovers."""
    results = a_crashed_store(tmp_path, 10)
    _forget_all_but_the_log(tmp_path)
    store_at(tmp_path, results[5], 1_000)
    report = recover_small(tmp_path)
    assert report.end_offset == results[-1].end_offset
    assert report.damage == ()


def test_an_older_record_whose_queue_does_not_go_on_ends_it(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path, 10)
    _forget_all_but_the_log(tmp_path)
    for each in results[5:]:
        store_at(tmp_path, each, 1_000)
        state_queue_offset(tmp_path, each, 90)
    report = recover_small(tmp_path)
    assert report.end_offset == results[4].end_offset
    assert "whole records in it are not proved" in report.cut[0].reason


def state_queue_offset(path: Path, result: PutResult, queue_offset: int) -> None:
    overwrite(path, result.physical_offset + 20, queue_offset.to_bytes(8, "big"))


def _vouch_for_all(path: Path) -> None:
    """Let the checkpoint know by its time that all was durable: no crash made the damage."""
    write_checkpoint(RealFileSystem(), path, StoreCheckpoint(physic_timestamp_ms=LATER_MS + 1))


def _forget_all_but_the_log(path: Path) -> None:
    (path / "checkpoint").unlink()
    (path / "lakelog" / "queues.json").unlink(missing_ok=True)
    shutil.rmtree(path / "consumequeue")
