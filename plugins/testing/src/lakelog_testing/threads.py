"""Threads and processes of a test: calls beside it with a time limit, waits, and leftovers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from lakelog.hooks import FlushStrategy, Outcome, Replicator
from lakelog.results import PutStatus

T = TypeVar("T")

PATIENCE_SECONDS = 10.0
"""Time limit for expected events; only failures take this long."""


@contextmanager
def beside(call: Callable[[], T]) -> Iterator[Future[T]]:
    """Run ``call`` in a separate thread; the end of the block waits for it."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


def settle(outcome: Outcome, patience_seconds: float = PATIENCE_SECONDS) -> PutStatus:
    """The final status of an outcome; raises its exception, or ``TimeoutError``."""
    return outcome if isinstance(outcome, PutStatus) else outcome.result(patience_seconds)


S = TypeVar("S", bound=FlushStrategy | Replicator)


def poll(is_so: Callable[[], bool], patience_seconds: float = PATIENCE_SECONDS) -> bool:
    """Wait until ``is_so()``; returns whether it became so in time."""
    deadline = time.monotonic() + patience_seconds
    while not is_so():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.0005)
    return True


@contextmanager
def running(service: S, log: Any) -> Iterator[S]:
    """Start the service, and close it at the end of the block, even if that fails."""
    service.start(log)
    try:
        yield service
    except BaseException:
        with suppress(Exception):
            service.close()
        raise
    service.close()


@contextmanager
def no_thread_left(patience_seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Fail if threads that started inside the block outlive it."""
    before = set(threading.enumerate())
    yield
    is_over = poll(lambda: before.issuperset(threading.enumerate()), patience_seconds)
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert is_over, f"threads still run after the close: {left}"


_STILL: Final = "TZX"
"""States of a thread that is stopped, or has ended."""


def hold(pid: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Send ``SIGSTOP`` and wait until every thread has stopped; ``SIGCONT`` continues it.

    The signal takes effect when each thread is next scheduled. On a busy machine the process may
    run on for a while, and handle a ``SIGTERM`` that arrives meanwhile first. A process that has
    ended, but was not waited for, counts as stopped. Source: ``signal(7)``, ``proc(5)``.

    Raises ``ProcessLookupError`` if the process does not exist, and ``TimeoutError``.
    """
    os.kill(pid, signal.SIGSTOP)
    if not poll(lambda: _is_held(pid), patience_seconds):
        raise TimeoutError(f"process {pid} still runs")


def _is_held(pid: int) -> bool:
    try:
        stats = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has just ended
        return False
    if not stats:
        raise ProcessLookupError(pid)
    return all(each.rpartition(")")[2].split()[0] in _STILL for each in stats)
