"""Runs a call beside a test with a limit of time, and sees whether threads were left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar

from lakelog.interfaces import Flushable, Outcome
from lakelog.status import PutStatus

T = TypeVar("T")

PATIENCE_SECONDS = 10.0
"""How long a test waits for what must happen; a failure takes this long, a success does not."""


@contextmanager
def beside(call: Callable[[], T]) -> Iterator[Future[T]]:
    """Run ``call`` in a thread of its own; the block's end waits for it."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


def settle(outcome: Outcome, patience_seconds: float = PATIENCE_SECONDS) -> PutStatus:
    """The status that an outcome is or comes to; raises ``TimeoutError``, or what was raised."""
    return outcome if isinstance(outcome, PutStatus) else outcome.result(patience_seconds)


class Service(Protocol):
    """What flush strategies and replicators share."""

    def start(self, log: Flushable) -> None:
        """Begin."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Hear of an append."""

    def close(self) -> None:
        """Stop."""


S = TypeVar("S", bound=Service)


@contextmanager
def running(service: S, log: Flushable) -> Iterator[S]:
    """Start it, and close it behind the block, also when the block fails."""
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
    """Fail if threads that began inside the block go on behind it."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline and set(threading.enumerate()) - before:
        time.sleep(0.01)
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert not left, f"threads go on after the close: {left}"
