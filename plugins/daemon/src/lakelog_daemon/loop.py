"""The event loop of ``serve``: one thread waits for descriptors, timers and signals.

It sleeps until the next event, so that idling costs nothing.
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
"""Pause after a failed callback, in seconds, because the failure may repeat at once."""


class HasFileno(Protocol):
    """An object with a file descriptor."""

    def fileno(self) -> int:
        """The descriptor."""


@attrs.define(order=True)
class Timer:
    """A call scheduled for a time, unless it is cancelled first."""

    due: float
    number: int
    act: Callable[[], None] = attrs.field(order=False)
    is_cancelled: bool = attrs.field(default=False, order=False)

    def cancel(self) -> None:
        """Cancel the call."""
        self.is_cancelled = True


class Loop:
    """Waits for events and calls back, all in the thread that calls :meth:`run`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._numbers = itertools.count()

    def watch(self, what: int | HasFileno, act: Callable[[], None]) -> None:
        """Call ``act`` whenever ``what`` is readable."""
        self._selector.register(what, selectors.EVENT_READ, act)

    def unwatch(self, what: int | HasFileno) -> None:
        """Stop watching ``what``; to be called before its descriptor is closed."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(what)

    def later(self, seconds: float, act: Callable[[], None]) -> Timer:
        """Call ``act`` once, after ``seconds``."""
        timer = Timer(time.monotonic() + seconds, next(self._numbers), act)
        heapq.heappush(self._timers, timer)
        return timer

    def every(self, seconds: float, act: Callable[[], None]) -> None:
        """Call ``act`` now, and then at this interval; missed calls are not made up for."""
        due = time.monotonic() + seconds
        _call(act)
        self.later(max(0.0, due - time.monotonic()), lambda: self.every(seconds, act))

    def run(self, is_done: Callable[[], bool], timeout_seconds: float | None = None) -> bool:
        """Process events until ``is_done``; ``False`` on timeout."""
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while not is_done():
            if end is not None and time.monotonic() >= end:
                return False
            self._once(end)
        return True

    def close(self) -> None:
        """Close the selector."""
        self._selector.close()

    def _once(self, end: float | None) -> None:
        for key, _ in self._selector.select(self._pause(end)):
            _call(key.data)
        now = time.monotonic()  # timers that expire from here on run after the next descriptors
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
    """Log any exception of a callback, and continue: it must not stop the store."""
    try:
        act()
    except Exception:  # noqa: BLE001  # the store must continue
        _LOG.exception("a mistake of lakelog's own")
        time.sleep(BREATH_SECONDS)


@contextmanager
def signals_in(
    loop: Loop, numbers: Sequence[signal.Signals], act: Callable[[signal.Signals], None]
) -> Iterator[None]:
    """Call ``act`` from the loop for each of these signals; main thread only."""
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
    """Do nothing: the loop reads the signal from the wakeup descriptor."""
