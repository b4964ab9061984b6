"""The clock by which a store keeps house; tests bring their own."""

from __future__ import annotations

import time
from threading import TIMEOUT_MAX, Event
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and waits."""

    def now_ms(self) -> int:
        """The time, in ms since 1970."""

    def monotonic_ms(self) -> int:
        """Ms since some moment; never goes back."""

    def wait(self, stop: Event, ms: int) -> bool:
        """Wait for ``ms``, or until ``stop`` is set, which ends it at once; whether it is set."""


class SystemClock:
    """The machine's."""

    def now_ms(self) -> int:
        """The time, in ms since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Ms since some moment."""
        return time.monotonic_ns() // 1_000_000

    def wait(self, stop: Event, ms: int) -> bool:
        """Sleep."""
        return stop.wait(min(ms / 1000, TIMEOUT_MAX))
