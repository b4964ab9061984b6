"""The clock of the machine."""

from __future__ import annotations

import time
from threading import Event


class SystemClock:
    """The clock of maintenance, unless a test replaces it."""

    def now_ms(self) -> int:
        """The time, in ms since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Monotonic time in ms."""
        return time.monotonic_ns() // 1_000_000

    def wait(self, stop: Event, ms: int) -> bool:
        """Sleep for ``ms`` or until ``stop`` is set; return whether it is set."""
        return stop.wait(ms / 1000)
