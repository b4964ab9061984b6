"""Group commit by several processes: what it says is durable is so, whoever dies when."""

from __future__ import annotations

import errno
import fcntl
import itertools
import mmap
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import attrs
import pytest

from core.tests.processes.dying import die, fork
from core.tests.processes.test_locks import AT as BYTE
from core.tests.processes.test_locks import a_lock
from lakelog.errors import NotOpened
from lakelog.files.filesystem import File, RealFileSystem, not_opened
from lakelog.processes import group_sync as groupsync
from lakelog.processes.group_sync import FAILED, FLUSHED, MARKED, CopiedEnd, GroupSync
from lakelog.processes.locks import is_locked
from lakelog_testing import interrupted
from lakelog_testing.threads import beside
from tests.support.sampling import at_every, every

__all__ = ["fork"]
"""Tests of plugins import it from here."""
AT = 128
DISK_AT = 512
APPENDED, DURABLE, DROPPED, SYNCS, AGAIN = range(5)


class Lost(Exception):
    """The store has failed."""


def nothing() -> None:
    """No fault."""


@attrs.define
class Disk:
    """A log in shared memory, and a disk whose kernel drops what it could not write.

    :ivar file: one more description of ``lock``, to look whether the byte is locked
    :ivar on_sync: called in the middle of a sync
    """

    words: memoryview
    file: File
    on_sync: Callable[[], None] = nothing

    def end_to_sync(self) -> int:
        return int(self.words[APPENDED])

    def sync(self, start: int, end: int) -> None:
        assert is_locked(self.file, BYTE, fcntl.F_WRLCK), "a sync beside another"
        self.words[SYNCS] += 1
        self.on_sync()
        if start >= self.words[DROPPED]:  # else the pages are clean, and nothing is written
            self.words[DURABLE] = max(self.words[DURABLE], end)

    def write_again(self, start: int, end: int) -> None:
        assert start <= end <= self.words[APPENDED]
        self.words[AGAIN] += 1
        self.words[DROPPED] = 0

    def hang(self) -> tuple[threading.Event, threading.Event]:
        inside, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            inside.set()
            go_on.wait()

        self.on_sync = wait
        return inside, go_on

    def breaks(self) -> None:
        """The disk takes nothing, and says so to the one who syncs."""
        self.words[DROPPED] = self.words[APPENDED]
        raise OSError(errno.EIO, "Input/output error")

    def kills(self) -> None:
        """It takes nothing, and the one who syncs dies before anybody knows."""
        self.words[DROPPED] = self.words[APPENDED]
        os.kill(os.getpid(), signal.SIGKILL)


def a_sync(folder: Path) -> tuple[GroupSync, Disk, memoryview]:
    """One process's part, the disk, and the shared words of the sync."""
    lock, _ = a_lock(folder)
    with (folder / "shared").open("r+b") as file:
        memory = memoryview(mmap.mmap(file.fileno(), mmap.PAGESIZE))
    disk = Disk(memory[DISK_AT : DISK_AT + 64].cast("Q"), RealFileSystem().open(folder / "lock"))
    sync = GroupSync(
        disk.end_to_sync,
        disk.sync,
        disk.write_again,
        lock,
        memory,
        AT,
        lambda error: Lost(str(error)),
    )
    return sync, disk, memory[AT : AT + groupsync.BYTES].cast("Q")


def test_one_sync_is_for_all_that_was_appended(tmp_path: Path) -> None:
    (one, disk, _), (other, _, _) = a_sync(tmp_path), a_sync(tmp_path)
    disk.words[APPENDED] = 100
    assert one.reach(40, 0)
    assert (one.flushed, other.flushed) == (100, 100)
    assert other.reach(100, 0)
    assert (disk.words[SYNCS], disk.words[AGAIN]) == (1, 0)


def test_a_sync_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    (one, disk, _), (other, _, _) = a_sync(tmp_path), a_sync(tmp_path)
    disk.words[APPENDED] = 10
    inside, go_on = disk.hang()
    leader = threading.Thread(target=one.reach, args=(10, 60))
    leader.start()
    inside.wait()
    for each in (one, other):
        assert not each.reach(10, 0.01)
        assert not each.wait(10, 0.01, nothing)
    go_on.set()
    leader.join()
    assert other.reach(10, 0)
    assert one.wait(10, 0, nothing)


def test_who_waits_has_another_thread_sync(tmp_path: Path) -> None:
    """It asks where nobody syncs, and waits for a sync of another process without asking."""
    (one, disk, _), (other, _, _) = a_sync(tmp_path), a_sync(tmp_path)
    disk.words[APPENDED] = 10
    with ThreadPoolExecutor(1) as thread:
        assert one.wait(10, 60, lambda: thread.submit(one.lead, 10))
    inside, go_on = disk.hang()
    disk.words[APPENDED] = 20
    asked: list[int] = []
    with ThreadPoolExecutor(2) as thread:
        led = thread.submit(one.lead, 20)
        inside.wait()
        assert not other.lead(20)
        waited = thread.submit(other.wait, 20, 60, lambda: asked.append(0))
        go_on.set()
        assert waited.result()
        assert led.result()
    assert disk.words[SYNCS] == 2


@pytest.mark.parametrize("way", ["reach", "wait"])
def test_an_error_fails_the_store_for_all(tmp_path: Path, way: str) -> None:
    (one, disk, words), (other, _, _) = a_sync(tmp_path), a_sync(tmp_path)
    disk.words[APPENDED] = 10
    disk.on_sync = disk.breaks
    with ThreadPoolExecutor(1) as thread:
        waiting = partial(one.wait, ask=lambda: thread.submit(one.lead, 10))
        with pytest.raises(Lost, match="Input/output" if way == "reach" else None):
            (one.reach if way == "reach" else waiting)(10, 60)
    disk.on_sync = nothing
    for each in (one, other):
        for call in (each.reach, partial(each.wait, ask=nothing)):
            with pytest.raises(Lost):
                call(10, 60)
        with pytest.raises(Lost):
            each.lead(10)
    assert words[FAILED]
    assert disk.words[SYNCS] == 1  # nobody tries again
    assert (words[FLUSHED], disk.words[DURABLE]) == (0, 0)


@pytest.mark.parametrize("way", ["reach", "wait"])
def test_an_error_that_dies_with_who_heard_of_it(tmp_path: Path, way: str) -> None:
    """Whoever syncs next writes again; who waits for one that died in its sync asks again."""
    sync, disk, words = a_sync(tmp_path)
    disk.words[APPENDED] = 10
    disk.on_sync = disk.kills
    dying = partial(sync.reach, 10, 60) if way == "reach" else partial(sync.lead, 10)
    assert os.waitpid(fork(dying), 0)[1] == signal.SIGKILL
    disk.on_sync = nothing
    assert words[MARKED] == 10
    assert not words[FAILED]
    with ThreadPoolExecutor(1) as thread:
        if way == "reach":
            assert sync.reach(10, 60)
        else:
            assert sync.wait(10, 60, lambda: thread.submit(sync.lead, 10))
    assert (disk.words[DURABLE], disk.words[AGAIN]) == (10, 1)


def test_bytes_that_cannot_be_written_again_fail_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_disk: Disk, _start: int, _end: int) -> None:
        raise OSError(errno.EIO, "a record is not whole")

    monkeypatch.setattr(Disk, "write_again", damaged)
    sync, disk, words = a_sync(tmp_path)
    disk.words[APPENDED] = words[MARKED] = 10
    with pytest.raises(Lost, match="not whole"):
        sync.reach(10, 60)
    assert words[FAILED]
    assert not words[FLUSHED]


@at_every(29)
def test_a_death_at_any_step_leaves_what_the_next_one_can_go_on_with(
    tmp_path: Path, stride: int
) -> None:
    sync, disk, words = a_sync(tmp_path)
    for step in every(stride):
        end = disk.words[APPENDED] = disk.words[APPENDED] + 10
        lived = not die(step, groupsync, partial(sync.reach, end, 60))
        assert words[FLUSHED] <= disk.words[DURABLE]
        assert sync.reach(end, 60)
        assert end == words[FLUSHED] == disk.words[DURABLE]
        if lived:
            break
    assert step > 100


@at_every(29)
def test_a_death_at_any_step_behind_an_error_makes_nothing_durable_that_is_not(
    tmp_path: Path, stride: int
) -> None:
    sync, disk, words = a_sync(tmp_path)
    failed = 0

    def fails() -> None:
        with pytest.raises(Lost):
            sync.reach(10, 60)

    for step in every(stride):
        words[:] = memoryview(bytes(groupsync.BYTES)).cast("Q")
        disk.words[:] = memoryview(bytes(64)).cast("Q")
        disk.words[APPENDED] = 10
        disk.on_sync = disk.breaks
        lived = not die(step, groupsync, fails)
        disk.on_sync = nothing
        if words[FAILED]:
            failed += 1
            with pytest.raises(Lost):
                sync.reach(10, 60)
        else:
            assert sync.reach(10, 60)
        assert words[FLUSHED] == disk.words[DURABLE]
        if lived:
            break
    assert 0 < failed * stride < step


def test_ctrl_c_at_any_step_leaves_no_lock(tmp_path: Path) -> None:
    (sync, disk, words), (other, _, _) = a_sync(tmp_path), a_sync(tmp_path)
    for step in itertools.count():
        end = disk.words[APPENDED] = disk.words[APPENDED] + 10
        came = interrupted(partial(sync.reach, end, 60), step, ["group_sync", "locks"])
        with ThreadPoolExecutor(1) as thread:  # else it could take a lock that was left for its own
            first, second = (sync, other) if step % 2 else (other, sync)
            assert thread.submit(first.reach, end, 5).result()
            disk.words[APPENDED] += 10
            assert thread.submit(second.reach, end + 10, 5).result()
        assert words[FLUSHED] == disk.words[DURABLE]
        if came.place is None:
            break
    assert step > 20


def test_an_exception_behind_an_error_of_a_sync_leaves_no_lock(tmp_path: Path) -> None:
    (sync, disk, _), (other, _, _) = a_sync(tmp_path), a_sync(tmp_path)

    def fail() -> None:
        raise not_opened(OSError(errno.EMFILE, "Too many open files"), "open", tmp_path)

    def reach(end_offset: int) -> None:
        with suppress(NotOpened):
            sync.reach(end_offset, 60)

    for step in itertools.count():
        end = disk.words[APPENDED] = disk.words[APPENDED] + 10
        disk.on_sync = fail
        came = interrupted(partial(reach, end), step, ["group_sync"])
        disk.on_sync = nothing
        with ThreadPoolExecutor(1) as thread:  # else it could take a lock that was left for its own
            assert thread.submit((sync, other)[step % 2].reach, end, 5).result(), came.place
        if came.place is None:
            break
    assert step > 10


def test_copied_never_decreases_and_reachable_does() -> None:
    copied = CopiedEnd(memoryview(bytearray(64)), 8)
    assert (copied.end, copied.reachable_end) == (0, -1)
    for reachable, end in ((100, 100), (50, 100), (-1, 100), (0, 100), (120, 120)):
        copied.publish(reachable)
        assert (copied.end, copied.reachable_end) == (end, reachable)


def test_a_waiter_is_woken_through_another_view_of_the_words() -> None:
    page = memoryview(bytearray(64))
    here, elsewhere = CopiedEnd(page, 8), CopiedEnd(page, 8)
    with beside(lambda: here.wait(100, 30.0)) as call:
        elsewhere.publish(99)
        elsewhere.publish(100)
        assert call.result(30)
    assert not here.wait(101, 0.01)
