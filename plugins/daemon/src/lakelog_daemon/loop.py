"""The one thread of ``serve`` that waits: for descriptors, points in time, and signals.

It sleeps until the next of them: what is idle costs nothing.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, Protocol

import attrs

_LOG: Final = logging.getLogger("lakelog.serve")
BREATH_SECONDS: Final = 0.05
"""How long to wait after a failure, as the same may come again at once."""


class HasFileno(Protocol):
    """Something to wait for."""

    def fileno(self) -> int:
        """Its descriptor."""


@attrs.define(order=True)
class Timer:
    """Something to do at a point in time, unless it is cancelled before."""

    due: float
    number: int
    act: Callable[[], None] = attrs.field(order=False)
    is_cancelled: bool = attrs.field(default=False, order=False)

    def cancel(self) -> None:
        """Do not do it."""
        self.is_cancelled = True


class Loop:
    """Waits, and calls; all in the thread that calls :meth:`run`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._numbers = itertools.count()

    def watch(self, what: int | HasFileno, act: Callable[[], None]) -> None:
        """Call ``act`` whenever ``what`` can be read."""
        self._selector.register(what, selectors.EVENT_READ, act)

    def unwatch(self, what: int | HasFileno) -> None:
        """Call nobody any more; before the descriptor is closed."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(what)

    def later(self, seconds: float, act: Callable[[], None]) -> Timer:
        """Call ``act`` once, then."""
        timer = Timer(time.monotonic() + seconds, next(self._numbers), act)
        heapq.heappush(self._timers, timer)
        return timer

    def every(self, seconds: float, act: Callable[[], None]) -> None:
        """Call ``act`` now, and from then on again and again, never twice to make up for one."""
        due = time.monotonic() + seconds
        _call(act)
        self.later(max(0.0, due - time.monotonic()), lambda: self.every(seconds, act))

    def run(self, is_done: Callable[[], bool], timeout_seconds: float | None = None) -> bool:
        """Wait and call until ``is_done``; ``False`` if it did not come to that in time."""
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while not is_done():
            if end is not None and time.monotonic() >= end:
                return False
            self._once(end)
        return True

    def close(self) -> None:
        """Let go of the descriptor that it waits by."""
        self._selector.close()

    def _once(self, end: float | None) -> None:
        for key, _ in self._selector.select(self._pause(end)):
            _call(key.data)
        now = time.monotonic()  # what comes due meanwhile has its turn after what can be read
        while self._timers and self._timers[0].due <= now:
            timer = heapq.heappop(self._timers)
            if not timer.is_cancelled:
                _call(timer.act)

    def _pause(self, end: float | None) -> float | None:
        while self._timers and self._timers[0].is_cancelled:
            heapq.heappop(self._timers)
        dues = [each.due for each in self._timers[:1]] + ([] if end is None else [end])
        return max(0.0, min(dues) - time.monotonic()) if dues else None


def _call(act: Callable[[], None]) -> None:
    """What one of them does wrong is told, and ends nothing: a store must not fall over it."""
    try:
        act()
    except Exception:  # noqa: BLE001  # whatever it is, the store goes on
        _LOG.exception("a mistake of lakelog's own")
        time.sleep(BREATH_SECONDS)


@contextmanager
def signals_in(
    loop: Loop, numbers: Sequence[signal.Signals], act: Callable[[signal.Signals], None]
) -> Iterator[None]:
    """Call ``act`` from the loop for each of these signals that comes; main thread only."""
    ear, mouth = socket.socketpair()
    ear.setblocking(False)
    mouth.setblocking(False)
    former = {each: signal.signal(each, _nothing) for each in numbers}
    wakeup = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)

    def came() -> None:
        with suppress(BlockingIOError):
            for number in ear.recv(4096):
                if number in former:
                    act(signal.Signals(number))

    loop.watch(ear, came)
    try:
        yield
    finally:
        loop.unwatch(ear)
        signal.set_wakeup_fd(wakeup)
        for each, handler in former.items():
            signal.signal(each, handler)
        ear.close()
        mouth.close()


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """The loop hears of it."""
