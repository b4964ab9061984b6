"""From where a log is read: what was not read has its units, or queue offsets go out twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.recovery.support import crash, recover_small
from core.tests.store.support import SEGMENT, fill, open_small
from lakelog import Message, Store
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.state.checkpoint import StoreCheckpoint, write_checkpoint

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
