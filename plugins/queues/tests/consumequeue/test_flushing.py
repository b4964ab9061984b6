"""The durability of queues over time, and the times in the checkpoint."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from core.tests.store.faults import SeenFiles
from lakelog.errors import StoreFailed
from lakelog.files.checkpoint import CheckpointKeeper, StoreCheckpoint, read_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.queue_ends import read_kept
from lakelog.format.layout import OWN_DIR
from lakelog_queues.files.openfiles import DirtyFiles, OpenFiles
from lakelog_testing.samples import STORED_AT_MS
from plugins.queues.tests.consumequeue.support import SMALL, plain, queues
from tests.support.waiting import until


class Watched(SeenFiles):
    """Fails on request of a test, or calls a function before the next sync of a file."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = False
        self.meanwhile: list[Callable[[], object]] = []

    def see(self, call: str, path: Path) -> None:
        if call == "sync":
            if self.failing:
                raise OSError(errno.EIO, "this test's disk fails", str(path))
            while self.meanwhile:
                self.meanwhile.pop()()
        super().see(call, path)

    @property
    def synced(self) -> list[str]:
        """The topics of files that were synced."""
        return [path.parent.parent.name for call, path in self.seen if call == "sync"]

    @property
    def folders(self) -> list[Path]:
        """The folders that were synced."""
        return [path for call, path in self.seen if call == "sync_dir"]


@pytest.fixture
def files() -> Watched:
    return Watched()


def logics_ms(path: Path) -> int:
    return read_checkpoint(RealFileSystem(), path).logics_timestamp_ms


def test_flush_syncs_each_file_once_then_moves_the_checkpoint(
    tmp_path: Path, files: Watched
) -> None:
    made = queues(tmp_path, files=files)
    made.dispatch(plain("t", range(5)))
    made.dispatch(plain("u", range(15), 1000))
    assert (files.synced, logics_ms(tmp_path)) == ([], 0)
    made.flush()
    assert sorted(files.synced) == ["t", "u", "u"]
    assert logics_ms(tmp_path) == STORED_AT_MS + 1000 + 14 * 200
    made.flush()
    assert len(files.synced) == 3
    made.dispatch(plain("t", [5], 4000))
    made.close()
    assert len(files.synced) == 4
    assert logics_ms(tmp_path) == STORED_AT_MS + 4000


@pytest.mark.parametrize("kind", ["consumequeue", "consumequeue_ext"])
def test_new_folders_are_synced_by_the_flush_and_not_before(
    tmp_path: Path, files: Watched, kind: str
) -> None:
    made = queues(tmp_path, type(SMALL)(ext_enabled=True), files=files)
    made.dispatch(plain("t", range(5)))
    made.dispatch(plain("u", range(5), 1000))
    assert files.folders == []
    made.flush()
    expected = {tmp_path, tmp_path / kind}
    expected |= {tmp_path / kind / topic for topic in "tu"}
    expected |= {tmp_path / kind / topic / "0" for topic in "tu"}
    assert expected <= set(files.folders)
    made.close()


def test_what_a_dead_owner_may_not_have_synced_is_synced(tmp_path: Path, files: Watched) -> None:
    made = queues(tmp_path, type(SMALL)(file_entries=10, ext_enabled=True))
    made.dispatch(plain("t", range(15)))
    made.dispatch(plain("u", range(5), 3000))
    made.close()
    again = queues(tmp_path, SMALL, files=files, clean=False)
    assert again.resume(0, 4000) == 0
    again.dispatch(plain("t", range(15)))
    assert files.synced == []
    again.flush()
    assert sorted(files.synced) == ["t", "t", "t", "u", "u"]  # units and codes
    assert {tmp_path, tmp_path / "consumequeue" / "t" / "0"} <= set(files.folders)
    again.close()
    calm = queues(tmp_path, SMALL, files=files)
    files.seen.clear()
    calm.resume(0, 4000)
    calm.close()
    assert files.synced == []


def test_a_failed_sync_is_remembered_and_moves_no_checkpoint(
    tmp_path: Path, files: Watched
) -> None:
    made = queues(tmp_path, files=files)
    made.dispatch(plain("t", range(5)))
    files.failing = True
    with pytest.raises(StoreFailed, match="sync of a queue failed"):
        made.flush()
    files.failing = False
    with pytest.raises(StoreFailed):
        made.flush()
    with pytest.raises(StoreFailed):
        made.dispatch(plain("t", range(5, 6), 1000))
    with pytest.raises(StoreFailed):  # then the stop is not clean
        made.close()
    assert (files.synced, logics_ms(tmp_path)) == ([], 0)


@pytest.mark.parametrize(("thorough_ms", "moved"), [(0, True), (3_600_000, False)])
def test_the_clock_flushes_too(tmp_path: Path, thorough_ms: int, moved: bool) -> None:
    settings = type(SMALL)(
        file_entries=10,
        flush_interval_ms=1,
        flush_least_pages=0,
        flush_thorough_interval_ms=thorough_ms,
    )
    files = Watched()
    made = queues(tmp_path, settings, files=files)
    made.dispatch(plain("t", range(5)))
    until(lambda: files.synced and (not moved or logics_ms(tmp_path)), "nothing was flushed")
    assert (logics_ms(tmp_path) > 0) == moved
    made.close()


@pytest.mark.parametrize("interval_ms", [1, 3_600_000])  # enough bytes are due at once
def test_much_that_was_dispatched_is_flushed_before_its_time(
    tmp_path: Path, interval_ms: int
) -> None:
    settings = type(SMALL)(
        file_entries=10,
        flush_interval_ms=interval_ms,
        flush_thorough_interval_ms=3_600_000,
        flush_thorough_bytes=100,
    )
    made = queues(tmp_path, settings)
    made.dispatch(plain("t", range(5)))
    until(lambda: logics_ms(tmp_path))
    made.close()


def test_few_changed_pages_can_wait(tmp_path: Path, files: Watched) -> None:
    opened = OpenFiles(files, write=True)
    dirty = DirtyFiles(files, opened)
    path = tmp_path / "topic" / "0" / "file"
    path.parent.mkdir(parents=True)
    path.touch()
    dirty.wrote(path, 4000, 8191)
    dirty.sync(2)
    assert files.synced == []
    dirty.wrote(path, 8191, 8192)
    dirty.sync(2)
    assert files.synced == ["topic"]
    dirty.sync(0)
    assert files.synced == ["topic"]
    opened.close()


def test_what_is_dispatched_during_a_sync_is_not_taken_for_durable(
    tmp_path: Path, files: Watched
) -> None:
    """Its file may have been synced before; list and checkpoint cover it after the next sync."""
    (tmp_path / OWN_DIR).mkdir()
    made = queues(tmp_path, files=files)
    made.dispatch(plain("t", range(5)))
    files.meanwhile.append(lambda: made.dispatch(plain("t", range(5, 15), 1000)))
    made.flush()
    assert read_kept(files, tmp_path).ends == {("t", 0): 5}
    assert logics_ms(tmp_path) == STORED_AT_MS + 4 * 200
    made.flush()
    assert read_kept(files, tmp_path).ends == {("t", 0): 15}
    made.close()


def test_units_that_are_cut_off_are_zeroed_and_synced(tmp_path: Path, files: Watched) -> None:
    """Their file stays, with the units before them; other files are durably gone."""
    made = queues(tmp_path, files=files)
    made.dispatch(plain("t", range(25)))
    made.flush()
    files.seen.clear()
    made.truncate(4200)
    assert [call for call, _ in files.named("write_at", "sync")] == ["write_at", "sync"]
    assert files.folders == []
    made.truncate(2000)
    assert files.folders == [tmp_path / "consumequeue" / "t" / "0"]
    made.close()


def test_each_file_is_durably_removed_before_the_next_one(tmp_path: Path, files: Watched) -> None:
    made = queues(tmp_path, files=files)
    made.dispatch(plain("t", range(35)))
    made.flush()
    files.seen.clear()
    assert made.remove_before(6000) == 3
    calls = [call for call, _ in files.named("unlink", "sync_dir")]
    assert calls[-6:] == ["unlink", "sync_dir"] * 3
    made.close()


def test_the_ends_of_queues_are_written_after_the_sync(tmp_path: Path, files: Watched) -> None:
    (tmp_path / OWN_DIR).mkdir()
    made = queues(tmp_path, files=files)
    made.dispatch(plain("t", range(25)))
    made.flush()
    synced = [at for at, (call, path) in enumerate(files.seen) if path.parent.name == "0"]
    written = [at for at, (call, path) in enumerate(files.seen) if path.parent.name == OWN_DIR]
    assert max(synced) < min(written)
    made.close()


def test_a_failed_sync_of_a_queue_stops_the_checkpoint(tmp_path: Path, files: Watched) -> None:
    keeper = CheckpointKeeper(RealFileSystem(), tmp_path)
    made = queues(tmp_path, files=files, keeper=keeper)
    made.dispatch(plain("t", range(5)))
    files.failing = True
    with pytest.raises(StoreFailed):
        made.flush()
    files.failing = False
    keeper.advance(StoreCheckpoint(physic_timestamp_ms=STORED_AT_MS))
    assert read_checkpoint(RealFileSystem(), tmp_path).physic_timestamp_ms == 0
    with pytest.raises(StoreFailed):
        made.close()


def test_a_lack_of_descriptors_is_no_failed_sync(tmp_path: Path, files: Watched) -> None:
    """As of an import on first use, which is an error of no file of the store."""
    made = queues(tmp_path, files=files)
    made.dispatch(plain("t", range(5)))

    def lacks() -> None:
        raise OSError(errno.EMFILE, "no descriptor", "numpy/__init__.py")

    files.meanwhile.append(lacks)
    with pytest.raises(OSError, match="no descriptor"):
        made.flush()
    made.flush()
    assert logics_ms(tmp_path) == STORED_AT_MS + 4 * 200
    made.close()
