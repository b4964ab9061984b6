"""The lock on a byte: excludes processes, times out, ends with its holder, and wakes who waits."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog.files.pages import futex
from lakelog.files.shared import byte_lock as bytelock
from lakelog.files.shared.byte_lock import ByteLock
from lakelog.files.shared.ofd_lock import is_locked, set_lock

AT = 8
WORDS_AT = 64
COUNTS = """
import mmap, sys, time
from pathlib import Path
from core.tests.shared.test_bytelock import a_lock
lock, words = a_lock(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    assert lock.acquire(60)
    before = words[0]
    if not number % 16:
        time.sleep(0)
    words[0] = before + 1
    lock.release()
print("done", flush=True)
sys.stdin.readline()
"""


def a_lock(folder: Path, at: int = AT, words_at: int = WORDS_AT) -> tuple[ByteLock, memoryview]:
    """The lock of one process, and 8 words that it guards."""
    files = RealFileSystem()
    shared = files.open(folder / "shared", write=True, create=True)
    shared.truncate(mmap.PAGESIZE)
    memory = memoryview(shared.map(mmap.PAGESIZE, writable=True))
    file = files.open(folder / "lock", write=True, create=True)
    return ByteLock(file, at, memory, words_at), memory[:64].cast("Q")


def counting(folder: Path, times: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", COUNTS, str(folder), str(times)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )


def hear(process: subprocess.Popen[str], what: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{what}\n"


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_holder_that_is_killed_holds_nobody_up(tmp_path: Path) -> None:
    lock, words = a_lock(tmp_path)
    for _ in range(5):
        several = [counting(tmp_path, 1_000_000) for _ in range(2)]
        for each in several:
            hear(each, "ready")
            go_on(each)
        while words[0] < 200:
            time.sleep(0.001)
        for each in several:
            each.send_signal(signal.SIGKILL)
        assert lock.acquire(60)
        words[0] = 0
        lock.release()
        for each in several:
            each.communicate()


def test_a_lock_that_is_held_is_not_had_in_time(tmp_path: Path) -> None:
    (one, _), (other, _) = a_lock(tmp_path), a_lock(tmp_path)
    assert one.acquire(0)
    assert not other.acquire(0)
    assert not other.acquire(0.01)
    assert other.waited[0]
    one.release()
    assert not one.waited[0]
    assert other.acquire(0)


def test_who_waits_is_woken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its time limit: a wake that is lost would leave it asleep until the last one."""
    monkeypatch.setattr(bytelock, "LONGEST_SLEEP_S", 60)
    lock, words = a_lock(tmp_path)
    assert lock.acquire(0)
    waiter = counting(tmp_path, 1)
    hear(waiter, "ready")
    go_on(waiter)
    while not lock.waited[0]:
        time.sleep(0.001)
    words[0] = 41
    lock.release()
    hear(waiter, "done")
    waiter.communicate("\n")
    assert words[0] == 42


def test_it_works_where_there_is_no_futex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(futex, "_NUMBERS", {})
    (one, _), (other, _) = a_lock(tmp_path), a_lock(tmp_path)
    assert one.acquire(0)
    assert not other.acquire(0.01)
    one.release()
    assert other.acquire(0)


def test_where_no_byte_can_be_locked_nobody_waits(tmp_path: Path) -> None:
    files = RealFileSystem()
    memory = memoryview(bytearray(mmap.PAGESIZE))
    a_lock(tmp_path)
    readable = files.open(tmp_path / "lock")  # the kernel wants a file that may be written
    assert not is_locked(readable, AT, fcntl.F_WRLCK)
    with pytest.raises(OSError, match="cannot lock"):
        set_lock(readable, AT, fcntl.F_WRLCK)
    with pytest.raises(OSError, match="cannot lock"):
        ByteLock(readable, AT, memory, WORDS_AT).acquire(60)


def test_a_shared_byte_becomes_an_exclusive_one_where_nobody_else_shares_it(
    tmp_path: Path,
) -> None:
    files = RealFileSystem()
    one, other = (files.open(tmp_path / "lock", write=True, create=True) for _ in range(2))
    assert set_lock(one, 0, fcntl.F_RDLCK)
    assert set_lock(other, 0, fcntl.F_RDLCK)
    assert not set_lock(one, 0, fcntl.F_WRLCK)
    assert is_locked(other, 0, fcntl.F_WRLCK)  # what was held stays
    assert not is_locked(other, 0, fcntl.F_RDLCK)
    assert set_lock(other, 0, fcntl.F_UNLCK)
    assert set_lock(one, 0, fcntl.F_WRLCK)
    assert is_locked(other, 0, fcntl.F_RDLCK)
    os.close(os.dup(one.fileno()))  # as other locks of POSIX would end
    assert is_locked(other, 0, fcntl.F_RDLCK)
