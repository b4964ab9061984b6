"""What stands behind the end of a log: kept aside, zeroed, and never seen again."""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import lakelog
from core.tests.recovery.support import (
    StoppingFiles,
    a_crashed_store,
    crash,
    kept_lines,
    log_bytes,
    offsets,
    quarantine,
    recover_small,
    starts,
    tear,
)
from core.tests.registry.samples import plugin
from core.tests.store.faults import SeenFiles
from core.tests.store.support import (
    SEGMENT,
    FaultyFiles,
    a_store,
    fill,
    open_small,
    overwrite,
    read_small,
    segments,
    tree,
)
from lakelog import Message, PutResult
from lakelog.errors import StoreError
from lakelog.files.checkpoint import StoreCheckpoint, read_checkpoint, write_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.identity import ReplicaState, write_replica
from lakelog.format.layout import ABORT_FILE
from lakelog.hooks.kinds import StoreSettings
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.apply import BackgroundSync
from lakelog_testing import FaultyFile
from lakelog_testing.samples import copy_store

pytestmark = pytest.mark.both_ways


def test_a_torn_tail_is_cut_and_kept(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    tear(tmp_path, results[-1])
    end = results[-2].end_offset
    torn = log_bytes(tmp_path)[end:].rstrip(b"\x00")
    with open_small(tmp_path) as store:
        report = store.recovery
        assert report is not None
        assert offsets(store) == starts(results[:-1])
        assert (report.clean, report.end_offset, report.damage) == (False, end, ())
        assert [(each.offset, each.end_offset) for each in report.cut] == [(end, end + len(torn))]
        assert report.cut[0].path is not None
        assert report.cut[0].path.read_bytes() == torn
        assert store.put(Message("t", b"new", queue_id=0)).queue_offset == 109
    (line,) = kept_lines(tmp_path)
    assert line["offset"] == end
    assert line["length"] == len(torn)
    assert line["segment"] == segments(tmp_path)[-1].name
    assert line["position"] == end % SEGMENT


def test_the_tail_is_zero_and_durable_before_the_first_append(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    tear(tmp_path, results[-1])
    end = results[-2].end_offset
    files = _SyncedFiles()
    store = open_small(tmp_path, files=files)
    synced = files.synced[segments(tmp_path)[-1]]
    assert log_bytes(tmp_path)[end:].strip(b"\x00") == b""
    assert len(synced) == SEGMENT
    assert synced[end % SEGMENT :].strip(b"\x00") == b""
    store.close()


def test_a_tail_of_a_whole_segment_is_zero_and_durable_too(tmp_path: Path) -> None:
    """The log ends with the segment before, and no record of this one is synced otherwise."""
    results = a_crashed_store(tmp_path)
    last = segments(tmp_path)[-1]
    first = next(each for each in results if each.physical_offset == int(last.name))
    for each in results[results.index(first) :]:
        tear(tmp_path, each)
    files = _SyncedFiles()
    with open_small(tmp_path, files=files) as store:
        assert store.max_offset == first.physical_offset
        assert files.synced[last] == bytes(SEGMENT)
        assert log_bytes(tmp_path)[first.physical_offset :].strip(b"\x00") == b""


def test_what_was_read_after_an_unclean_stop_is_durable(tmp_path: Path) -> None:
    """Its owner may have died before a sync; from now on it counts as flushed."""
    results = a_crashed_store(tmp_path)
    files = _SyncedFiles()
    with open_small(tmp_path, files=files) as store:
        assert store.flushed_offset == results[-1].end_offset
        assert {each: each.read_bytes() for each in segments(tmp_path)}.items() <= (
            files.synced.items()
        )


def test_the_order_in_which_things_are_done(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    tear(tmp_path, results[-1])
    last = segments(tmp_path)[-1]
    last.with_name(f"{int(last.name) + SEGMENT:020d}").write_bytes(b"old".ljust(SEGMENT, b"\x00"))
    late = StoreCheckpoint(confirm_offset=1 << 40)
    write_checkpoint(RealFileSystem(), tmp_path, late)
    files = SeenFiles()
    open_small(tmp_path, files=files).close()
    done = files.named()
    copied = [at for at, each in enumerate(done) if each == ("sync_dir", "quarantine")]
    removed, zeroed, synced, noted = (
        done.index(each)
        for each in (
            ("unlink", f"{int(last.name) + SEGMENT:020d}"),
            ("write_at", last.name),
            ("sync", last.name),
            ("write_at", "checkpoint"),
        )
    )
    assert copied[-1] < removed < zeroed < synced < noted
    assert ("sync_dir", "commitlog") in done[removed:zeroed]


class _SyncedFiles(SeenFiles):
    """Notes what each file holds at its last sync."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: dict[Path, bytes] = {}

    def see(self, call: str, path: Path) -> None:
        if call == "sync":
            self.synced[path] = path.read_bytes()


def test_segments_behind_the_end_go_if_they_hold_anything(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    last = segments(tmp_path)[-1]
    behind = [last.with_name(f"{int(last.name) + SEGMENT * n:020d}") for n in (1, 2, 3)]
    for number, each in enumerate(behind):
        each.write_bytes((b"old" * (number == 1)).rjust(100, b"\x00").ljust(SEGMENT, b"\x00"))
    report = recover_small(tmp_path)
    assert report.end_offset == results[-1].end_offset
    assert len(report.cut) == 1
    assert not behind[1].exists()
    assert not behind[2].exists()
    assert list(quarantine(tmp_path).values()) == [b"old".rjust(100, b"\x00")]


def test_segments_behind_the_end_go_the_last_one_first(tmp_path: Path) -> None:
    """A gap between segments would prevent the next open, if the machine stops meanwhile."""
    results = a_crashed_store(tmp_path)
    last = segments(tmp_path)[-1]
    behind = [last.with_name(f"{int(last.name) + SEGMENT * n:020d}") for n in (1, 2, 3)]
    for each in behind:
        each.write_bytes(b"old".ljust(SEGMENT, b"\x00"))
    files = SeenFiles()
    assert recover_small(tmp_path, files=files).end_offset == results[-1].end_offset
    names = {each.name for each in behind}
    done = [each for each in files.named("unlink", "sync_dir") if each[1] in {*names, "commitlog"}]
    first = done.index(("unlink", behind[-1].name))
    assert done[first : first + 6] == [
        step
        for each in reversed(behind)
        for step in (("unlink", each.name), ("sync_dir", "commitlog"))
    ]


def test_the_same_bytes_are_kept_once(tmp_path: Path) -> None:
    """As after a crash in the middle of zeroing: what is left is a part of what was kept."""
    results = a_crashed_store(tmp_path)
    tear(tmp_path, results[-1])
    last, end = results[-1], results[-2].end_offset
    held = log_bytes(tmp_path)[end : last.end_offset]
    recover_small(tmp_path)
    kept = quarantine(tmp_path)
    overwrite(tmp_path, end, bytes(10) + held[10:])
    crash(tmp_path)
    report = recover_small(tmp_path)
    assert quarantine(tmp_path) == kept
    assert len(kept_lines(tmp_path)) == 1
    assert report.cut[0].path is not None
    assert report.cut[0].path.name in kept
    overwrite(tmp_path, end, b"other" * 3)
    crash(tmp_path)
    recover_small(tmp_path)
    assert len(quarantine(tmp_path)) == 2
    assert kept.items() <= quarantine(tmp_path).items()


def test_no_room_for_the_quarantine_changes_nothing(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    tear(tmp_path, results[-1])
    before = tree(tmp_path / "commitlog"), (tmp_path / "checkpoint").read_bytes()
    with pytest.raises(StoreError, match="nothing was changed"):
        recover_small(tmp_path, files=_FullQuarantine())
    assert (tree(tmp_path / "commitlog"), (tmp_path / "checkpoint").read_bytes()) == before
    assert (tmp_path / "abort").exists()
    assert quarantine(tmp_path) == {}
    assert not (tmp_path / "lakelog" / "quarantine" / "copying").exists()
    recover_small(tmp_path)


class _FullQuarantine(FaultyFiles):
    """A disk on which there is no room for a copy."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> Any:
        file = FaultyFile(RealFileSystem().open(path, write=write, create=create))
        if path.parent.name == "quarantine":
            file.failing = {"write_at"}
        return file


def test_the_checkpoint_claims_no_more_than_the_log_holds(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    tear(tmp_path, results[-1])
    files = RealFileSystem()
    late = 9_000_000_000_000
    write_checkpoint(files, tmp_path, StoreCheckpoint(late, late, late, 0, 1 << 40))
    dry = tree(tmp_path)
    recover_small(tmp_path, dry_run=True)
    assert tree(tmp_path) == dry
    recover_small(tmp_path)
    found = read_checkpoint(files, tmp_path)
    with open_small(tmp_path) as store:
        last_ms = list(store.scan())[-1].store_timestamp_ms
    assert found.confirm_offset == results[-2].end_offset
    times = (found.physic_timestamp_ms, found.logics_timestamp_ms, found.index_timestamp_ms)
    assert max(times) <= last_ms


def test_the_hook_and_the_log_tell(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    results = a_crashed_store(tmp_path)
    tear(tmp_path, results[-1])
    told: list[Any] = []

    def recovered(path: Path, report: object) -> None:
        told.append((path, report))

    with (
        caplog.at_level(logging.INFO, "lakelog"),
        open_small(tmp_path, plugins=[plugin(lakelog_store_recovered=recovered)]) as store,
    ):
        assert told == [(tmp_path, store.recovery)]
    assert [each for each in caplog.messages if "after an unclean stop: read 109 records" in each]


def test_a_log_that_holds_nothing_whole_keeps_its_place(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    only = tmp_path / "commitlog" / f"{SEGMENT * 7:020d}"
    only.write_bytes(b"nothing" + bytes(SEGMENT - 7))
    crash(tmp_path)
    with open_small(tmp_path) as store:
        assert store.recovery is not None
        assert store.recovery.end_offset == SEGMENT * 7
        assert fill(store, 1)[0].physical_offset == SEGMENT * 7
    assert list(quarantine(tmp_path).values()) == [b"nothing"]


def _replica(path: Path) -> list[PutResult]:
    results = a_store(path, 110)
    write_replica(RealFileSystem(), path, ReplicaState("127.0.0.1:1"))
    return results


def test_a_replica_is_cut_at_the_offset(tmp_path: Path) -> None:
    results = _replica(tmp_path)
    end, before = results[59].end_offset, log_bytes(tmp_path)
    report = lakelog.cut_replica(tmp_path, end, plugins=[], segment_size_bytes=SEGMENT)
    assert report.end_offset == end
    assert log_bytes(tmp_path).rstrip(b"\x00") == before[:end].rstrip(b"\x00")
    assert any(each.startswith(before[end : end + 100]) for each in quarantine(tmp_path).values())
    with read_small(tmp_path) as store:
        assert offsets(store) == starts(results[:60])
        assert len(store.get("t", 0, 0, 200).messages) == 60


def test_a_cut_that_stops_anywhere_is_continued(tmp_path: Path) -> None:
    model = tmp_path / "model"
    results = _replica(model)
    end = results[59].end_offset
    write_replica(RealFileSystem(), model, ReplicaState("127.0.0.1:1", end))
    for number in range(5, 60, 17):
        path = copy_store(model, tmp_path / str(number))
        with suppress(Exception):  # any error: the machine is down
            recover_small(path, files=StoppingFiles(number))
        assert recover_small(path).end_offset == end, number


LARGE = 64 << 10


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    path = tmp_path / "s"
    with lakelog.open(path, segment_size_bytes=LARGE, dispatchers=()) as store:
        store.put_batch([lakelog.Message("t", bytes(1000), queue_id=0) for _ in range(200)])
    (path / ABORT_FILE).touch()
    return path


def test_segments_are_synced_from_where_the_reading_starts(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, real = list[str](), os.fdatasync

    def fdatasync(fd: int) -> None:
        names.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    ahead = BackgroundSync(StoreDirectory.of(RealFileSystem(), killed, StoreSettings()), LARGE)
    ahead.begin(LARGE)
    assert ahead._running is not None
    ahead._running.result()
    ahead.end()
    assert names == sorted(each.name for each in (killed / "commitlog").iterdir())[1:]
    assert len(names) > 2


def test_a_failure_is_the_failure_of_the_recovery(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells of it once: a later sync, of a file opened anew, may hear nothing."""
    real, told = os.fdatasync, list[int]()

    def fdatasync(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().parent.name == "commitlog" and not told:
            told.append(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    with pytest.raises((OSError, StoreError), match="Input/output error"):
        lakelog.open(killed, segment_size_bytes=LARGE, dispatchers=())
    assert told
    assert (killed / ABORT_FILE).exists()
