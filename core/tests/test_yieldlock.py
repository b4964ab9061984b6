"""The append lock: excludes, times out, and serves threads that are switched off inside."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest

from lakelog.yieldlock import YieldLock


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads change as often as they can."""
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

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, count) == (1, 2000)


def test_a_lock_that_is_held_is_not_had_in_time() -> None:
    lock = YieldLock()
    with lock:
        assert not lock.acquire(0.01)
        assert not lock.acquire(0)
    assert lock.acquire(0)
    lock.release()


def test_a_waiter_gets_it_once_it_is_released() -> None:
    lock = YieldLock()
    lock.acquire()
    threading.Timer(0.05, lock.release).start()
    assert lock.acquire(30)
    lock.release()


def test_an_error_inside_releases_it() -> None:
    lock = YieldLock()
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert lock.acquire(0)
