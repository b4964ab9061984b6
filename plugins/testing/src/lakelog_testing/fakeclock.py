"""A clock that stands still until a test moves it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Condition, Event
from typing import Final

_PATIENCE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.005
"""How often a waiter looks whether its event was set: that wakes nobody here."""


class FakeClock:
    """Give it to ``lakelog.open(path, clock=...)``; it has no say in store times of messages.

    :param now_ms: what it shows at first, in ms since 1970; the machine's time if not given
    :param instant: whether waits that others than a test's :meth:`advance` would end take no time
        at all, and move the clock themselves
    """

    def __init__(self, now_ms: int | None = None, *, instant: bool = False) -> None:
        self._now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._passed_ms = 0
        self._instant = instant
        self._waiting: list[int] = []
        self._waits = 0
        self._changed = Condition()

    def now_ms(self) -> int:
        """The time that it shows."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """How far it was moved; :meth:`set_back` does not count."""
        return self._passed_ms

    def wait(self, stop: Event, ms: int) -> bool:
        """Wait until the clock was moved by ``ms`` in all, or ``stop`` is set."""
        if self._instant:
            self.advance(ms)
            return stop.is_set()
        with self._changed:
            due = self._passed_ms + ms
            self._waiting.append(due)
            self._waits += 1
            self._changed.notify_all()
            while self._passed_ms < due and not stop.is_set():
                self._changed.wait(_LOOK_SECONDS)
            self._waiting.remove(due)
            return stop.is_set()

    def advance(self, ms: int) -> None:
        """Move it on; who waited for less goes on."""
        with self._changed:
            self._passed_ms += ms
            self._now_ms += ms
            self._changed.notify_all()

    def set_back(self, ms: int) -> None:
        """Let it show an earlier time, as an operator may; waits are not concerned."""
        self._now_ms -= ms

    def advance_and_settle(self, ms: int) -> None:
        """Move it on until the one thread that waits has done what was due, and waits again.

        The clock is moved from wait to wait, so that no round is passed over. Raises
        ``TimeoutError`` if nobody waits.
        """
        target = self._passed_ms + ms
        while (due := self._next_due()) <= target:
            waits = self._waits
            self.advance(due - self._passed_ms)
            self._until(partial(self._has_waited_since, waits))
        self.advance(target - self._passed_ms)

    def _next_due(self) -> int:
        self._until(lambda: bool(self._waiting))
        return self._waiting[0]

    def _has_waited_since(self, waits: int) -> bool:
        return self._waits > waits

    def _until(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(is_so, _PATIENCE_SECONDS):
                raise TimeoutError("nobody waits for the clock")
