"""Threads that the system refuses to start, and the append lock that serves them in turns."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest

from lakelog.errors import ThreadNotStarted
from lakelog.runtime.threads import submitted
from lakelog.runtime.yieldlock import YieldLock


def test_work_without_a_thread_is_refused_and_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor keeps it, and would run it with the next work."""

    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    ran: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        with monkeypatch.context() as patched:
            patched.setattr(Thread, "start", refuse)
            with pytest.raises(ThreadNotStarted):
                submitted(pool.submit, "lakelog-test", lambda: ran.append("refused"))
        submitted(pool.submit, "lakelog-test", lambda: ran.append("later")).result(20)
    assert ran == ["later"]


@pytest.fixture
def restless() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_one_thread_at_a_time_is_inside() -> None:
    lock, inside, most, count = YieldLock(), 0, 0, 0

    def work() -> None:
        nonlocal inside, most, count
        for _ in range(500):
            with lock:
                inside += 1
                most = max(most, inside)
                before = count
                time.sleep(0)
                count = before + 1
                inside -= 1

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work) for _ in range(4)]:
            each.result()
    assert (most, count) == (1, 2000)


def test_a_lock_that_is_held_is_not_had_in_time() -> None:
    lock = YieldLock()
    with lock, ThreadPoolExecutor(1) as other:
        assert not other.submit(lock.acquire, 0.01).result()
        assert not other.submit(lock.acquire, 0).result()
        assert lock.is_mine()
        assert not other.submit(lock.is_mine).result()
    assert not lock.is_mine()
    assert lock.acquire(0)
    lock.release()
