"""Says how many puts were not durable in time: at most one line per second, with their number."""

from __future__ import annotations

import logging
import time
from typing import Final

EVERY_SECONDS: Final = 1.0
_log = logging.getLogger("lakelog")


class Tardy:
    """Counts puts whose time was over; used by one thread."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_ms = timeout_seconds * 1000
        self._count = 0
        self._told = -EVERY_SECONDS

    def add(self, count: int) -> None:
        """Count some more, and tell if the last line is old enough."""
        self._count += count
        if time.monotonic() - self._told >= EVERY_SECONDS:
            self.tell()

    def tell(self) -> None:
        """Tell of those that no line has told of yet, if there are any."""
        if not self._count:
            return
        _log.warning(
            "%d puts were not durable within %.0f ms; their messages are in the log",
            self._count,
            self._timeout_ms,
        )
        self._count, self._told = 0, time.monotonic()
