"""The lock on a byte, and who shares a store by such locks."""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from core.tests.processes.dying import fork
from lakelog.errors import StoreLocked
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import LOCK_CONTENT
from lakelog.processes import locks as bytelock
from lakelog.processes.locks import ByteLock, ProcessLock, is_locked, set_lock, wait_lock
from lakelog.processes.membership import SET_UP, Membership
from lakelog.processes.ownership import OPEN
from lakelog_testing import interrupted
from tests.support.waiting import until

AT = 8
WORDS_AT = 64


def a_lock(folder: Path, at: int = AT, words_at: int = WORDS_AT) -> tuple[ByteLock, memoryview]:
    """The lock of one process, and 8 words that it guards."""
    files = RealFileSystem()
    shared = files.open(folder / "shared", write=True, create=True)
    shared.truncate(mmap.PAGESIZE)
    memory = memoryview(shared.map(mmap.PAGESIZE, writable=True))
    file = files.open(folder / "lock", write=True, create=True)
    return ByteLock(file, at, memory, words_at), memory[:64].cast("Q")


def count(folder: Path, times: int) -> None:
    lock, words = a_lock(folder)
    for number in range(times):
        assert lock.acquire(60)
        before = words[0]
        if not number % 16:
            time.sleep(0)
        words[0] = before + 1
        lock.release()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_holder_that_is_killed_holds_nobody_up(tmp_path: Path) -> None:
    lock, words = a_lock(tmp_path)
    for _ in range(5):
        several = [fork(partial(count, tmp_path, 1_000_000)) for _ in range(2)]
        while words[0] < 200:
            time.sleep(0.001)
        for each in several:
            os.kill(each, signal.SIGKILL)
        assert lock.acquire(60)
        words[0] = 0
        lock.release()
        for each in several:
            os.waitpid(each, 0)


def test_a_lock_that_is_held_is_not_had_in_time(tmp_path: Path) -> None:
    (one, _), (other, _) = a_lock(tmp_path), a_lock(tmp_path)
    assert one.acquire(0)
    assert not other.acquire(0)
    assert not other.acquire(0.01)
    assert other.waited[0]
    one.release()
    assert not one.waited[0]
    assert other.acquire(0)


def test_longer_work_leaves_nothing_locked_wherever_a_signal_handler_raises(tmp_path: Path) -> None:
    files, place = RealFileSystem(), tmp_path / "lock"
    with (
        closing(files.open(place, write=True, create=True)) as file,
        closing(files.open(place, write=True)) as other,
        ThreadPoolExecutor(1) as thread,
    ):
        lock, inside = ProcessLock(file, AT), list[bool]()

        def look() -> None:
            inside.append(is_locked(other, AT, fcntl.F_WRLCK))

        def work() -> None:
            lock.run(look)  # as a finalizer might
            look()

        for at in itertools.count():
            place_of = interrupted(partial(lock.run, work), at).place
            assert not is_locked(other, AT, fcntl.F_WRLCK), place_of
            thread.submit(lock.run, look).result(20)
            if place_of is None:
                break
        assert at > 20
        assert all(inside)


def test_who_waits_is_woken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its time limit: a wake that is lost would leave it asleep until the last one."""
    monkeypatch.setattr(bytelock, "LONGEST_SLEEP_S", 60)
    lock, words = a_lock(tmp_path)
    assert lock.acquire(0)
    waiter = fork(partial(count, tmp_path, 1))
    while not lock.waited[0]:
        time.sleep(0.001)
    words[0] = 41
    lock.release()
    assert os.waitpid(waiter, 0)[1] == 0
    assert words[0] == 42


def test_it_works_where_there_is_no_futex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytelock, "_NUMBERS", {})
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


FILES = RealFileSystem()
MEMBER = """
import sys
from pathlib import Path
from lakelog.files.filesystem import RealFileSystem
from lakelog.processes.membership import Membership
member = Membership.join(RealFileSystem(), Path(sys.argv[1]), 60)
print(member.is_alone, flush=True)
sys.stdin.readline()
member.let_in()
print("in", flush=True)
sys.stdin.readline()
print(member.part(60), flush=True)
sys.stdin.readline()
"""


def join(path: Path, timeout_s: float = 0) -> Membership:
    return Membership.join(FILES, path, timeout_s)


@contextmanager
def another(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def go_on(process: subprocess.Popen[str]) -> str:
    say(process)
    return hear(process)


def test_the_first_is_alone_and_others_come_when_it_lets_them_in(tmp_path: Path) -> None:
    one = join(tmp_path)
    assert one.is_alone
    with pytest.raises(StoreLocked, match="it recovers, or hangs"):
        join(tmp_path)
    one.let_in()
    other = join(tmp_path)
    assert not other.is_alone
    other.let_in()
    assert (tmp_path / "lock").read_bytes() == LOCK_CONTENT
    assert not one.part(0)
    one.leave()
    one.leave()
    assert other.part(0)
    other.leave()


def stopped(process: subprocess.Popen[str]) -> str:
    """Stop it; return the beginning of an error that names it."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    return rf"process {process.pid} \(.*\), which is stopped, has "


def test_a_stopped_process_that_recovers_is_not_waited_for(tmp_path: Path) -> None:
    with another(tmp_path) as other:
        assert hear(other) == "True"
        with pytest.raises(StoreLocked, match=stopped(other) + "been opening or closing"):
            join(tmp_path, 3600)


def test_who_joins_and_leaves_waits_for_no_member(tmp_path: Path) -> None:
    """Nor for one that may be the last; a member is stopped in each of its states."""
    member = join(tmp_path)
    member.let_in()
    with another(tmp_path) as other, closing(FILES.open(tmp_path / "lock", write=True)) as last:
        assert hear(other) == "False"
        assert set_lock(last, SET_UP, fcntl.F_WRLCK)
        for following in ("in", "False", ""):
            stopped(other)
            third = join(tmp_path)
            assert not third.is_alone
            third.let_in()
            assert not third.part(0)
            third.leave()
            other.send_signal(signal.SIGCONT)
            assert go_on(other) == following
    assert member.part(0)
    member.leave()


@pytest.mark.parametrize("ends", [True, False])
def test_the_last_one_waits_for_who_leaves_or_joins(tmp_path: Path, ends: bool) -> None:
    """It closes the store, if the other one was leaving; not if the other one is let in."""
    member = join(tmp_path)
    member.let_in()
    with another(tmp_path) as other, ThreadPoolExecutor(1) as thread:
        assert hear(other) == "False"
        if ends:
            assert [go_on(other), go_on(other)] == ["in", "False"]
        parting = thread.submit(member.part, 60)
        with closing(FILES.open(tmp_path / "lock", write=True)) as file:
            until(lambda: parting.done() or is_locked(file, SET_UP, fcntl.F_WRLCK))
        assert go_on(other) == ("" if ends else "in")
        assert parting.result(60) == ends
        member.leave()


def test_the_last_one_does_not_wait_for_a_stopped_one(tmp_path: Path) -> None:
    member = join(tmp_path)
    member.let_in()
    with another(tmp_path) as other:
        assert hear(other) == "False"
        with pytest.raises(StoreLocked, match=stopped(other) + "not left this store"):
            member.part(3600)
        member.leave()
        other.send_signal(signal.SIGCONT)
        assert [go_on(other), go_on(other)] == ["in", "True"]


def test_the_living_and_the_killed(tmp_path: Path) -> None:
    """Who joins when one was killed is alone, or not, as others live or do not."""
    with another(tmp_path) as first:
        assert hear(first) == "True"
        kill(first)  # while it recovers
    with another(tmp_path) as first:
        assert hear(first) == "True"
        with pytest.raises(StoreLocked):
            join(tmp_path)
        assert go_on(first) == "in"
        with another(tmp_path) as second:
            assert hear(second) == "False"
            kill(first)
            for following in ("in", "True"):
                third = join(tmp_path)
                assert not third.is_alone
                third.leave()
                assert go_on(second) == following
            with pytest.raises(StoreLocked):
                join(tmp_path)  # until it is killed while it closes
    fourth = join(tmp_path)
    assert fourth.is_alone
    fourth.leave()


@pytest.mark.parametrize(
    ("dies_after", "is_seen"),
    [(fcntl.F_RDLCK, True), (fcntl.F_RDLCK, False), (fcntl.F_WRLCK, False)],
)
def test_the_last_other_process_dies_while_one_joins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_after: int, is_seen: bool
) -> None:
    """Nobody else can vouch for the shared page then: the one that joins has to recover."""
    other = join(tmp_path)
    other.let_in()
    take = Membership._set

    def taken(self: Membership, at: int, kind: int) -> bool:
        done = take(self, at, kind)
        if (at, kind) == (OPEN, dies_after):
            other.forked()  # its locks end with its file
        return done

    if not is_seen:
        monkeypatch.setattr(Membership, "_is_beside_others", lambda _: False)
    monkeypatch.setattr(Membership, "_set", taken)
    member = join(tmp_path)
    assert member.is_alone
    member.leave()


def test_another_program_with_byte_0(tmp_path: Path) -> None:
    """As Java locks it: by POSIX, exclusively."""
    (tmp_path / "abort").write_text("4711")
    with (tmp_path / "lock").open("w") as java:
        fcntl.lockf(java, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        with pytest.raises(StoreLocked, match="lets nobody in: it is RocketMQ") as caught:
            join(tmp_path)
        assert caught.value.owner_pid == 4711
    member = join(tmp_path)
    with (tmp_path / "lock").open("r+") as java:
        for _ in range(2):
            with pytest.raises(BlockingIOError):
                fcntl.lockf(java, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            member.let_in()
        member.leave()
        fcntl.lockf(java, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def test_a_join_that_is_cut_short_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(_self: Membership, _at: int, _kind: int) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Membership, "_set", cut)
        with pytest.raises(KeyboardInterrupt):
            join(tmp_path)
    member = join(tmp_path)
    assert member.is_alone
    member.leave()


def test_who_has_waited_for_long_tries_as_often_as_who_comes_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With sleeps that only grow, each newcomer passes the one who waits: 62 s were seen."""
    clock, sleeps = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        clock[0] += seconds

    files = RealFileSystem()
    with (
        closing(files.open(tmp_path / "lock", write=True, create=True)) as held,
        closing(files.open(tmp_path / "lock", write=True)) as waiting,
    ):
        assert set_lock(held, AT, fcntl.F_WRLCK)
        with monkeypatch.context() as patched:
            patched.setattr(time, "sleep", sleep)
            patched.setattr(time, "monotonic", lambda: clock[0])
            assert not wait_lock(waiting, AT, 10)
    assert max(sleeps) > 10 * sleeps[0]  # hundreds that wait must not use up the processors
    assert sleeps[-1] == sleeps[0]
