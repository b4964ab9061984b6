"""Logs the number of puts that were not durable in time, at most one line per second."""

from __future__ import annotations

import logging
import time
from threading import Lock
from typing import Final

EVERY_SECONDS: Final = 1.0
_log = logging.getLogger("lakelog")


class TimeoutLog:
    """Counts puts that timed out; thread-safe."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_ms = timeout_seconds * 1000
        self._count = 0
        self._logged_s = -EVERY_SECONDS
        self._lock = Lock()

    def add(self, count: int) -> None:
        """Add to the count, and log it if the last line is old enough."""
        with self._lock:
            self._count += count
        if time.monotonic() - self._logged_s >= EVERY_SECONDS:
            self.write()

    def write(self) -> None:
        """Log the count since the last line, unless it is zero."""
        with self._lock:
            count, self._count = self._count, 0
            if count:
                self._logged_s = time.monotonic()
        if count:
            _log.warning(
                "%d puts were not durable within %.0f ms; their messages are in the log",
                count,
                self._timeout_ms,
            )
