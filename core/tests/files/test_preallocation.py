"""Blocks of the log: allocated in steps, ahead of the append; and a disk that is full."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import attrs
import pytest

from core.tests.store.support import SEGMENT, a_record_of, fill, open_small, segments
from lakelog import Message, PutRefused
from lakelog.errors import StoreError, StoreFailed
from lakelog.files.filesystem import File, RealFile, RealFileSystem
from lakelog.files.preallocation import Blocks, SegmentMaker
from lakelog_testing.crash.opener import owned_by
from tests.support.smalldisk import tmpfs
from tests.support.waiting import until

STEP = 16 << 10
SIZE = 16 * STEP
PAGE = 4096
STEPS: dict[str, Any] = {"segment_size_bytes": SIZE, "allocation_step_bytes": STEP}
AHEAD = "lakelog-preallocate"
STRAYS: list[Path] = []
"""Files that were closed before blocks of them were allocated."""


class Disk(RealFileSystem):
    """Asks ``before`` for each allocation in a segment: position, length, name of the thread."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        return _Asking(path, file, self) if path.name.isdigit() else file

    def before(self, position: int, length: int, thread: str) -> None:
        """Nothing."""


class _Asking(RealFile):
    def __init__(self, path: Path, file: File, disk: Disk) -> None:
        super().__init__(path, file)
        object.__setattr__(self, "_disk", disk)

    def allocate(self, length: int, position: int = 0) -> None:
        thread = threading.current_thread().name
        self._disk.before(position, length, thread)  # type: ignore[attr-defined]  # set past a frozen class
        link = Path(f"/proc/self/fd/{self.fileno()}")
        if not link.exists() or link.readlink().name != self.path.name:
            STRAYS.append(self.path)
        super().allocate(length, position)


class Failing(Disk):
    """Fails with ``error`` for steps longer than ``above``, in threads of a name."""

    def __init__(self, error: int = 0, above: int = 0, thread: str = "") -> None:
        self.error, self.above, self.thread = error, above, thread

    def before(self, position: int, length: int, thread: str) -> None:
        wanted = length > self.above and thread.startswith(self.thread)
        if self.error and wanted and position:
            raise OSError(self.error, os.strerror(self.error))


def blocks_bytes(file: Path) -> int:
    return file.stat().st_blocks * 512


def test_the_next_step_comes_before_it_is_needed(tmp_path: Path) -> None:
    with open_small(tmp_path, preallocate=True, **STEPS) as store:
        first = segments(tmp_path)[0]
        store.put(a_record_of(STEP // 2))
        assert blocks_bytes(first) == STEP
        store.put(a_record_of(100))
        until(lambda: blocks_bytes(first) > STEP)
        assert blocks_bytes(first) < SIZE


@pytest.mark.parametrize("body_bytes", [400, 3 * STEP])
def test_no_room_ahead_of_need_is_no_room_only_then(body_bytes: int, tmp_path: Path) -> None:
    files = Failing(errno.ENOSPC, thread=AHEAD)
    with open_small(tmp_path, preallocate=True, files=files, **STEPS) as store:
        fill(store, SIZE * 3 // body_bytes, body_bytes)
        assert len(segments(tmp_path)) > 2
        assert len(list(store.scan())) == SIZE * 3 // body_bytes


@pytest.mark.parametrize("thread", [AHEAD, "MainThread"])
def test_any_other_failure_fails_the_store(thread: str, tmp_path: Path) -> None:
    files = Failing(errno.EIO, thread=thread)
    store = open_small(tmp_path, preallocate=thread == AHEAD, files=files, **STEPS)
    store.put(a_record_of(STEP - 100))
    if thread == AHEAD:
        until(lambda: not store.is_writable)
    with pytest.raises((StoreFailed, PutRefused), match="fail"):
        fill(store, 1)
    assert (tmp_path / "abort").exists()
    with pytest.raises(StoreFailed):
        store.close()


def test_what_is_needed_is_tried_where_there_is_no_room_for_a_step(tmp_path: Path) -> None:
    with open_small(tmp_path, files=Failing(errno.ENOSPC, above=PAGE), **STEPS) as store:
        fill(store, 100)
        assert store.max_offset > 2 * STEP
        before = blocks_bytes(segments(tmp_path)[0])
        assert before < store.max_offset + 2 * PAGE  # one may be the file system's own
        with pytest.raises(PutRefused, match="No space left"):
            store.put(a_record_of(2 * PAGE))
        fill(store, 1)


def test_a_step_ends_before_its_file_is_closed(tmp_path: Path) -> None:
    """Else it would be of whatever file has the descriptor by then."""
    begun, go_on = threading.Event(), threading.Event()

    class Hanging(Disk):
        def before(self, position: int, length: int, thread: str) -> None:
            if position and thread.startswith(AHEAD):
                begun.set()
                go_on.wait(20)

    with (
        open_small(tmp_path, preallocate=True, files=Hanging(), **STEPS) as store,
        ThreadPoolExecutor(1) as pool,
    ):
        store.put(a_record_of(100))
        until(lambda: len(segments(tmp_path)) == 2)  # the roll needs nothing of the busy thread
        store.put(a_record_of(STEP - 300))
        assert begun.wait(20)
        rolling = pool.submit(store.put, a_record_of(SIZE - 100))
        wait([rolling], timeout=0.3)
        if rolling.done():
            owned_by(store).log.sync()  # closes what is full
        go_on.set()
        assert rolling.result().physical_offset == SIZE
        fill(store, 1)
    assert STRAYS == []  # the store is closed, and its threads have ended


def test_what_was_a_hole_stays_one_through_a_recovery(tmp_path: Path) -> None:
    with open_small(tmp_path, **STEPS) as store:
        fill(store, 3)
    (tmp_path / "abort").touch()
    first = segments(tmp_path)[0]
    with first.open("r+b") as file:
        file.seek(SIZE // 2)
        file.write(b"lost")
    before = blocks_bytes(first)
    with open_small(tmp_path, **STEPS) as store:
        assert store.recovery is not None
        assert store.recovery.cut
        assert blocks_bytes(first) <= before < SIZE
        assert not any(first.read_bytes()[store.max_offset :])
        fill(store, 1)
        assert blocks_bytes(first) <= before + STEP


def test_a_segment_that_another_process_makes_meanwhile_is_used(tmp_path: Path) -> None:
    """It may hold messages by the time that this process may make segments."""
    (tmp_path / "log").mkdir()
    other = SegmentMaker(RealFileSystem(), tmp_path / "log", tmp_path, SIZE)

    def turn(make: Callable[[], Blocks]) -> Blocks:
        made = other.make(0)
        made.file.write_at(0, b"message")
        made.file.close()
        return make()

    blocks = attrs.evolve(other, turn=turn).make(0)
    assert blocks.file.read_at(0, 7) == b"message"
    blocks.file.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path, 16 * SEGMENT) as place:
        yield place


def leave(disk: Path, free_bytes: int) -> Path:
    """Fill the disk with another file, but for so many bytes."""
    other = disk / "other"
    found = os.statvfs(disk)
    with other.open("ab") as file:
        size = file.tell() + found.f_bavail * found.f_frsize - free_bytes
        os.posix_fallocate(file.fileno(), 0, size)
    return other


@pytest.mark.root
@pytest.mark.parametrize("free_pages", [0, 1, 2, 3, 5, 8, 12, 14])
def test_no_room_at_open(free_pages: int, disk: Path) -> None:
    path = disk / "store"
    other = leave(disk, free_pages * PAGE)
    with pytest.raises(StoreError, match=r"No space left.*; make room"):
        open_small(path)
    left = [each.name for each in path.rglob("*") if each.is_file()]
    assert "abort" not in left
    assert not [name for name in left if name.isdigit()]
    assert "shared" not in left, "a page that could not be allocated must not be mapped later"
    assert not [name for name in left if re.fullmatch(r"queues\.[0-9]+", name)]
    other.unlink()
    with open_small(path) as store:
        assert store.put(Message("t", b"later")).physical_offset == 0
    assert not list(path.rglob("*.tmp"))


@pytest.mark.root
@pytest.mark.both_ways
def test_a_small_message_still_fits_when_a_large_one_does_not(disk: Path) -> None:
    with open_small(disk / "store") as store:
        store.put(a_record_of(SEGMENT - 1000))
        store.wait_dispatched()
        leave(disk, 0)
        with pytest.raises(PutRefused):
            store.put(a_record_of(1000))
        assert store.put(a_record_of(992)).end_offset == SEGMENT - 8
