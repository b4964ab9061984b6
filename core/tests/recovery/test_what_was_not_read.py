"""From where a log is read; of what was not read, noted damage stays known, and nothing else."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from core.tests.recovery.support import a_crashed_store, crash, flip, offsets, recover_small, starts
from core.tests.store.support import SEGMENT, a_store, fill, open_small, refused, segments
from lakelog import Message, PutResult, Store
from lakelog.errors import BadSegment, StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog_interfaces.checkpoint import StoreCheckpoint, read_checkpoint, write_checkpoint

pytestmark = pytest.mark.both_ways

FILES = RealFileSystem()


def noted(path: Path) -> list[PutResult]:
    """A store whose recovery noted damage, and was followed by a clean stop."""
    results = a_crashed_store(path)
    flip(path, results[10])
    read_from_the_start = attrs.evolve(read_checkpoint(FILES, path), logics_timestamp_ms=0)
    write_checkpoint(FILES, path, read_from_the_start)
    assert recover_small(path).damage
    return results


def test_noted_damage_is_told_again(tmp_path: Path) -> None:
    results = noted(tmp_path)
    report = recover_small(tmp_path)
    assert report.read_from > results[10].end_offset
    assert not report.read_all
    (damage,) = report.damage
    assert (damage.offset, damage.path) == (results[10].physical_offset, segments(tmp_path)[0])
    assert "noted earlier" in str(damage)
    (damage,) = recover_small(tmp_path, full=True).damage
    assert "noted earlier" not in str(damage)
    (damage,) = recover_small(tmp_path).damage
    assert str(damage).count("noted earlier") == 1


def test_refuse_heeds_it(tmp_path: Path) -> None:
    results = noted(tmp_path)
    with refused(tmp_path, BadSegment, str(results[10].physical_offset), "noted earlier"):
        open_small(tmp_path, on_damage="refuse")


def test_truncate_cuts_there(tmp_path: Path) -> None:
    results = noted(tmp_path)
    assert recover_small(tmp_path, on_damage="truncate").end_offset == results[9].end_offset
    report = recover_small(tmp_path)
    assert (report.damage, report.missing) == ((), ())
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(results[:10])


def test_full_reads_all_and_finds_what_else_nobody_would(tmp_path: Path) -> None:
    results = a_store(tmp_path)
    flip(tmp_path, results[10])
    report = recover_small(tmp_path)
    assert (report.damage, report.read_all, report.read_from > SEGMENT) == ((), False, True)
    for dry_run in (True, False):
        report = recover_small(tmp_path, full=True, dry_run=dry_run)
        assert (len(report.damage), report.read_all) == (1, True)


def test_a_dry_run_states_no_place_that_it_did_not_look_for(tmp_path: Path) -> None:
    a_crashed_store(tmp_path)
    assert recover_small(tmp_path, dry_run=True).dispatched_from is None
    assert recover_small(tmp_path).dispatched_from is not None


@pytest.mark.parametrize("name", ["abort", "abort.bak"])
def test_a_dry_run_says_what_is_in_the_way(tmp_path: Path, name: str) -> None:
    a_store(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    with refused(tmp_path, StoreError, name, "a file belongs there"):
        recover_small(tmp_path, dry_run=True)


# --- from where a log is read ---


LATE_MS = 9_000_000_000_000
UNIT_BYTES = 20
STOPS = pytest.mark.parametrize("clean", [True, False])


def left(path: Path, *, clean: bool) -> None:
    """Queue 1 has five messages, units of two were synced, and of the others none are there.

    Queue 0 reaches to the end, some segments further on, and the checkpoint claims all of it.
    """
    with open_small(path) as store:
        fill(store, 10)
        put(store, 2)
    kept = (path / "lakelog" / "queues.json").read_bytes()
    with open_small(path) as store:
        put(store, 3)
        fill(store, 130)
    (path / "lakelog" / "queues.json").write_bytes(kept)
    with (path / "consumequeue" / "t" / "1" / f"{0:020d}").open("r+b") as file:
        file.seek(2 * UNIT_BYTES)
        file.write(bytes(3 * UNIT_BYTES))
    if not clean:
        write_checkpoint(RealFileSystem(), path, StoreCheckpoint(LATE_MS, LATE_MS, LATE_MS))
        crash(path)


def put(store: Store, count: int) -> list[int]:
    return [store.put(Message("t", b".", queue_id=1)).queue_offset for _ in range(count)]


@STOPS
def test_no_queue_offset_is_given_twice(tmp_path: Path, clean: bool) -> None:
    left(tmp_path, clean=clean)
    with open_small(tmp_path) as store:
        assert put(store, 1) == [5]
        assert store.wait_dispatched()
        found = [each.queue_offset for each in store.get("t", 1, 0).messages]
    assert found == [0, 1, 2, 3, 4, 5]


@STOPS
def test_reading_begins_where_queues_were_last_synced(tmp_path: Path, clean: bool) -> None:
    left(tmp_path, clean=clean)
    assert recover_small(tmp_path, dry_run=True).start_offset == 0
    assert recover_small(tmp_path).clean is clean
    assert recover_small(tmp_path).start_offset > 2 * SEGMENT  # and that was synced again


@STOPS
def test_a_list_of_another_log_proves_nothing(tmp_path: Path, clean: bool) -> None:
    """Its marks are of no record of this one, so that all of it is read."""
    with open_small(tmp_path / "other") as store:
        fill(store, 3, 300)
    with open_small(tmp_path / "store") as store:
        fill(store, 130)
    kept = (tmp_path / "other" / "lakelog" / "queues.json").read_bytes()
    (tmp_path / "store" / "lakelog" / "queues.json").write_bytes(kept)
    if not clean:
        crash(tmp_path / "store")
    report = recover_small(tmp_path / "store")
    assert report.start_offset == report.dispatched_from == 0
    assert report.start_reason == "the log is not the one whose queues were synced"


@pytest.mark.parametrize("early", ["physic_timestamp_ms", "logics_timestamp_ms"])
def test_the_earlier_time_of_a_foreign_checkpoint_counts(tmp_path: Path, early: str) -> None:
    """RocketMQ syncs log and queues apart, and has no list of queues."""
    a_store(tmp_path, 130)
    (tmp_path / "lakelog" / "queues.json").unlink()
    times = {"physic_timestamp_ms": LATE_MS, "logics_timestamp_ms": LATE_MS, early: 1}
    write_checkpoint(FILES, tmp_path, StoreCheckpoint(**times))
    crash(tmp_path)
    assert recover_small(tmp_path, dry_run=True).start_offset == 0
    write_checkpoint(FILES, tmp_path, StoreCheckpoint(LATE_MS, LATE_MS))
    assert recover_small(tmp_path, dry_run=True).start_offset > 2 * SEGMENT
