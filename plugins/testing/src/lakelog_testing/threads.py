"""Runs calls beside a test with a time limit, and detects leftover threads.

Stops a process by ``SIGSTOP``, and waits until it has stopped.

``SIGSTOP`` takes effect when each thread of the process is next scheduled. On a busy machine the
process may run on for a while, and handle a ``SIGTERM`` that arrives meanwhile first. Source:
``signal(7)``, ``proc(5)``.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from lakelog.hooks import Flushable, Outcome
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


L_contra = TypeVar("L_contra", bound=Flushable, contravariant=True)


class StrategyThread(Protocol[L_contra]):
    """The common methods of flush strategies and replicators."""

    def start(self, log: L_contra) -> None:
        """Start."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Register an append."""

    def close(self) -> None:
        """Stop."""


S = TypeVar("S", bound=StrategyThread[Any])


@contextmanager
def running(service: S, log: Flushable) -> Iterator[S]:
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
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline and set(threading.enumerate()) - before:
        time.sleep(0.01)
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert not left, f"threads still run after the close: {left}"


_STILL: Final = "TZX"
"""States of a thread that is stopped, or has ended."""


def hold(pid: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Send ``SIGSTOP`` and wait until every thread has stopped; ``SIGCONT`` continues it.

    A process that has ended, but was not waited for, counts as stopped.

    Raises ``ProcessLookupError`` if the process does not exist, and ``TimeoutError``.
    """
    os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + patience_seconds
    while not _is_held(pid):
        if time.monotonic() > until:
            raise TimeoutError(f"process {pid} still runs")
        time.sleep(0.001)


def _is_held(pid: int) -> bool:
    try:
        stats = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has just ended
        return False
    if not stats:
        raise ProcessLookupError(pid)
    return all(each.rpartition(")")[2].split()[0] in _STILL for each in stats)
