"""Runs calls beside a test with a time limit, and detects leftover threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from lakelog.interfaces import Flushable, Outcome
from lakelog.status import PutStatus

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
