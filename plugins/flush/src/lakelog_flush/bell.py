"""Wakes one thread that sleeps; cheap to ring while it is awake anyway."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock


class Bell:
    """One thread sleeps, any thread rings.

    The sleeper says that it goes to sleep *before* it looks for work a last time, and whoever
    brings work looks whether it sleeps *afterwards*: no ring is lost.
    """

    __slots__ = ("_asleep", "_lock")

    def __init__(self) -> None:
        self._asleep = False
        self._lock = Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the sleeper, if it sleeps."""
        if self._asleep:
            self._asleep = False
            with suppress(RuntimeError):  # another one rings at the same time
                self._lock.release()

    def sleep(self, seconds: float, has_work: Callable[[], bool]) -> None:
        """Sleep until somebody rings; not at all if there is work. May wake for nothing."""
        self._asleep = True
        if not has_work():
            self._lock.acquire(timeout=seconds)
        self._asleep = False
