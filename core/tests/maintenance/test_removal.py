"""Deleting segments: in order, with reasons, beside readers."""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import lakelog
from core.tests.maintenance.support import FEW, Keeping, MaintenancePlugin, fill
from core.tests.store import support
from core.tests.store.support import SEGMENT, open_small, read_small, segments
from lakelog import Message, PutRefused, Store
from lakelog.errors import OffsetOutOfRange, StoreClosed, StoreFailed
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import segment_name
from lakelog.hooks import DeletionRate, KeptSegment
from lakelog.maintenance.pins import Pin, write_pin
from lakelog.runtime.locks import LockFreeEvent
from lakelog_testing import FakeClock
from lakelog_testing.crash.opener import owned_by
from tests.support.forked import start


def names(path: Path) -> list[int]:
    return [int(each.name) for each in segments(path)]


def held(store: Store) -> Any:
    return owned_by(store).segments


def test_it_deletes_what_the_cleaner_chose_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lakelog")
    plugin = MaintenancePlugin(Keeping(keep=1))
    with plugin.open(tmp_path) as store:
        put = fill(store, 160)
        report = store.delete_expired()
        count = len(report.deleted)
        assert count >= 2
        assert [each.start_offset for each in report.deleted] == plugin.deleted == plugin.deleting
        assert plugin.deleted == [at * SEGMENT for at in range(count)]
        assert {each.reason for each in report.deleted} == {"surplus"}
        assert report.freed_bytes == count * SEGMENT
        assert report.kept is None
        assert f"{segment_name(0)} is deleted: surplus" in caplog.text
        assert store.min_offset == report.min_offset == count * SEGMENT == names(tmp_path)[0]
        due = [each.physical_offset for each in put if each.physical_offset >= store.min_offset]
        assert [each.physical_offset for each in store.scan()] == due
    with open_small(tmp_path) as store:
        assert [each.physical_offset for each in store.scan()] == due
        assert store.recovery is not None
        assert store.recovery.minimum == count * SEGMENT
        assert store.recovery.clean


def test_the_cleaner_is_told_of_each_sealed_segment(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(Keeping(keep=99))
    with plugin.open(tmp_path) as store:
        put = fill(store, 160)
        write_pin(RealFileSystem(), tmp_path, Pin("lake", SEGMENT + 1, 0))
        store.delete_expired()
        infos, situation = plugin.cleaner.asked[-1]
        assert situation.manual
        assert situation.now_ms == plugin.clock.now_ms()
        starts = sorted(names(tmp_path))[:-1]
        assert [each.start_offset for each in infos] == starts
        for info in infos:
            end = info.start_offset + SEGMENT
            last = [each for each in put if each.physical_offset < end][-1]
            assert info.last_timestamp_ms == last.store_timestamp_ms
            assert info.pinned_by == (("lake",) if end > SEGMENT + 1 else ())


def test_a_segment_of_a_clock_that_was_ahead_has_the_time_of_the_next_one(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(Keeping(keep=99), clock=FakeClock(1_700_000_000_000))
    with plugin.filled(tmp_path) as store:
        store.delete_expired()
    infos, _ = plugin.cleaner.asked[-1]
    assert {each.last_timestamp_ms for each in infos} == {1_700_000_000_000}


def test_the_active_segment_stays(tmp_path: Path) -> None:
    plugin = MaintenancePlugin()
    with plugin.filled(tmp_path, 100) as store:
        store.delete_expired()
        assert len(names(tmp_path)) == 1
        assert store.delete_expired().deleted == ()
        store.put(Message("t", b""))


def test_the_minimum_has_moved_before_a_file_goes(tmp_path: Path) -> None:
    """Otherwise readers are sent to a file that is gone."""
    begins: list[tuple[int, int]] = []

    class Looking(RealFileSystem):
        def unlink(self, path: Path) -> None:
            if path.parent.name == "commitlog":
                begins.append((int(path.name), reader.min_offset))
            super().unlink(path)

    plugin = MaintenancePlugin(Keeping(keep=1))
    with plugin.filled(tmp_path, files=Looking()) as store, read_small(tmp_path) as reader:
        deleted = store.delete_expired().deleted
        assert len(deleted) > 1
        starts = [each.start_offset for each in deleted]
        assert begins == [(start, start + SEGMENT) for start in starts]


def test_overridden_pins_are_told_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plugin = MaintenancePlugin()
    with plugin.filled(tmp_path, 100, maintenance={"override_pins": True}) as store:
        write_pin(RealFileSystem(), tmp_path, Pin("lake", 0, plugin.clock.now_ms()))
        report = store.delete_expired()
        assert report.deleted[0].pinned_by == ("lake",)
    told = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert f"offsets 0 to {SEGMENT} are lost" in told[0].getMessage()


def test_what_queues_do_not_know_yet_stays(tmp_path: Path) -> None:
    plugin = MaintenancePlugin()
    with plugin.open(tmp_path) as store, owned_by(store).reput.paused():
        support.fill(store, 100)
        report = store.delete_expired(dry_run=True)
        assert report.deleted == ()
        assert report.kept is not None
        assert "queues and index reach only to offset" in report.kept.reason


# --- readers ---


def test_a_deletion_waits_for_no_reader_and_takes_nothing_from_it(tmp_path: Path) -> None:
    with MaintenancePlugin(Keeping()).filled(tmp_path, 100) as store:
        owned_by(store).log.sync()
        view = held(store).view(0, 1000)
        theirs = bytes(view)
        assert store.delete_expired().kept is None
        assert view == theirs
        assert not [each for each in os.listdir("/proc/self/fd") if _is_deleted(each, tmp_path)]


def _is_deleted(fd: str, path: Path) -> bool:
    with suppress(OSError):
        name = os.readlink(f"/proc/self/fd/{fd}")
        return bool(name.startswith(str(path)) and name.endswith("(deleted)"))
    return False


def test_readers_hear_where_the_log_begins_now(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(Keeping(keep=1))
    with plugin.open(tmp_path) as store, read_small(tmp_path) as other:
        put = fill(store, 160)
        late = put[1].physical_offset
        running = [each.scan(late) for each in (store, other)]
        assert [next(each).physical_offset for each in running] == [late, late]
        del running
        gc.collect()
        store.delete_expired()
        begins = f"the log now begins at {store.min_offset}"
        for each in (store, other):
            assert each.min_offset == store.min_offset
            with pytest.raises(OffsetOutOfRange, match=begins):
                each.look_up(late)
            with pytest.raises(OffsetOutOfRange, match=begins):
                each.scan(late)
            with pytest.raises(OffsetOutOfRange, match=begins):
                each.scan_pieces(late)
            assert next(each.scan()).physical_offset >= store.min_offset
            assert next(each.scan(0)).physical_offset >= store.min_offset


@pytest.mark.parametrize("mode", ["owner", "read"])
def test_a_scan_never_passes_over_what_is_deleted_meanwhile(tmp_path: Path, mode: str) -> None:
    plugin = MaintenancePlugin(Keeping(keep=1))
    with plugin.filled(tmp_path, 300) as store:
        reader = store if mode == "owner" else read_small(tmp_path)
        scan = reader.scan()
        next(scan)
        assert len(store.delete_expired().deleted) > 2
        with pytest.raises(OffsetOutOfRange, match="deleted by retention"):
            for _ in scan:
                pass
        reader.close()


def read_all(store: Store) -> None:
    try:
        numbers = [int(found.body[:6]) for found in store.scan()]
    except OffsetOutOfRange:
        return
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    for at in (0, store.queues("t")[0].min_offset):
        store.get("t", 0, at)


def test_readers_and_deletions_and_puts_at_once(tmp_path: Path) -> None:
    """No thread fails, and a reader from the minimum on misses no message."""
    plugin = MaintenancePlugin(Keeping(keep=3))
    with plugin.filled(tmp_path, 100, flush="inline", **FEW) as store:
        stop = LockFreeEvent()

        def read() -> None:
            while not stop.is_set():
                read_all(store)
                with read_small(tmp_path, **FEW) as reader:
                    read_all(reader)

        with ThreadPoolExecutor(2) as pool:
            reading = [pool.submit(read) for _ in range(2)]
            for number in range(100, 260):
                store.put(Message("t", b"%06d" % number + b"." * 394, queue_id=0))
                if number % 20 == 0:
                    store.delete_expired()
            stop.set()
            for each in reading:
                each.result()
        assert store.min_offset > 2 * SEGMENT


# --- failures ---


class Stubborn(RealFileSystem):
    """A file system on which one file cannot be deleted, or a folder cannot be synced."""

    def __init__(self) -> None:
        self.keeps: set[str] = set()
        self.unsynced: set[str] = set()

    def unlink(self, path: Path) -> None:
        if path.name in self.keeps:
            raise OSError(errno.EPERM, "Operation not permitted", str(path))
        super().unlink(path)

    def sync_dir(self, path: Path) -> None:
        if path.name in self.unsynced:
            raise OSError(errno.EIO, "Input/output error", str(path))
        super().sync_dir(path)


def test_a_file_that_cannot_be_deleted_is_tried_again_before_any_other(tmp_path: Path) -> None:
    files, plugin = Stubborn(), MaintenancePlugin()
    with plugin.filled(tmp_path, files=files) as store:
        every = names(tmp_path)
        stuck = segments(tmp_path)[1]
        files.keeps.add(stuck.name)
        why = f"cannot be deleted: [Errno 1] Operation not permitted: '{stuck}'"
        report = store.delete_expired()
        assert [each.start_offset for each in report.deleted] == every[:1]
        assert report.kept == KeptSegment(every[1], f"its file {why}")
        assert names(tmp_path) == every[1:]
        report = store.delete_expired()
        assert report.deleted == ()
        assert report.kept == KeptSegment(every[2], f"the file of {every[1]} {why}")
        assert names(tmp_path) == every[1:]
        assert store.min_offset == every[2]
        files.keeps.clear()
        report = store.delete_expired()
        assert [each.start_offset for each in report.deleted] == every[1:-1]
        assert names(tmp_path) == every[-1:]
        assert plugin.deleted == every[:-1]


def test_a_folder_that_cannot_be_synced_makes_the_store_fail(tmp_path: Path) -> None:
    """Otherwise the next file could be durably deleted before this one, which leaves a gap."""
    files = Stubborn()
    store = MaintenancePlugin().open(tmp_path, files=files)
    fill(store, 160)
    every = names(tmp_path)
    files.unsynced.add("commitlog")
    with pytest.raises(StoreFailed):
        store.delete_expired()
    assert names(tmp_path) == every[1:]
    with pytest.raises(PutRefused):
        store.put(Message("t", b""))
    with pytest.raises(StoreFailed):
        store.delete_expired()
    files.unsynced.clear()
    with pytest.raises(StoreFailed):
        store.close()
    with open_small(tmp_path) as store:
        assert store.min_offset == every[1]


def test_a_cleaner_that_leaves_a_gap_deletes_nothing(tmp_path: Path) -> None:
    class Leaving(Keeping):
        def choose(self, segments: Any, situation: Any) -> Any:
            return list(super().choose(segments, situation))[1:]

    with MaintenancePlugin(Leaving()).filled(tmp_path) as store:
        before = names(tmp_path)
        with pytest.raises(lakelog.LakelogError, match="consecutive segments from the first"):
            store.delete_expired()
        assert names(tmp_path) == before


def test_a_store_that_is_closed_cleans_no_more(tmp_path: Path) -> None:
    store = MaintenancePlugin().open(tmp_path)
    store.close()
    with pytest.raises(StoreClosed):
        store.delete_expired()


def test_a_dry_run_counts_all_the_rounds_that_a_person_gets_in_each_role(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(Keeping(keep=1, pace=DeletionRate(batch_max=2, interval_ms=0)))
    with plugin.filled(tmp_path, 300) as store:
        before = names(tmp_path)
        seen = store.delete_expired(dry_run=True)
        assert len(seen.deleted) > 2
        for mode in ("write", "read"):
            with plugin.open(tmp_path, mode=mode) as other:
                assert other.delete_expired(dry_run=True) == seen
        assert names(tmp_path) == before
        assert store.delete_expired().deleted == seen.deleted


def test_a_plugin_can_keep_a_segment_and_all_behind_it(tmp_path: Path) -> None:
    plugin = MaintenancePlugin(veto=SEGMENT)
    with plugin.filled(tmp_path) as store:
        report = store.delete_expired()
        assert report.kept is not None
        assert report.kept.start_offset == store.min_offset == SEGMENT
        assert "not archived yet" in report.kept.reason
        assert plugin.deleted == [0]


# --- killed on its way, at every change that it makes to the disk ---


def test_whatever_change_it_is_killed_before_the_next_open_is_consistent(tmp_path: Path) -> None:
    with start("core.tests.maintenance.killing", [str(tmp_path)]) as killing:
        assert killing.stdout is not None
        rows = [json.loads(line) for line in killing.stdout]
    assert killing.wait() == 0
    assert [row for row in rows if row["wrong"]] == []
    assert [row["killed"] for row in rows] == [True] * (len(rows) - 1) + [False]
    changes = [row["before"] or "" for row in rows]
    for kind in ("unlink commitlog/", "sync_dir ", "unlink 0/", "rename lakelog/queues.json"):
        assert any(each.startswith(kind) for each in changes), changes
    assert len({row["segments"] for row in rows}) > 2
