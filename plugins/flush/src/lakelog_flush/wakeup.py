"""Wakes one sleeping thread; a notification is cheap while that thread is awake."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock


class Wakeup:
    """One thread sleeps, any thread notifies it.

    The sleeper sets ``_asleep`` *before* its last check for work. A thread that adds work reads
    ``_asleep`` *afterwards*. So no notification is lost.
    """

    __slots__ = ("_asleep", "_lock")

    def __init__(self) -> None:
        self._asleep = False
        self._lock = Lock()
        self._lock.acquire()

    def notify(self) -> None:
        """Wake the sleeper, if it sleeps."""
        if self._asleep:
            self._asleep = False
            with suppress(RuntimeError):  # another thread notifies at the same time
                self._lock.release()

    def sleep(self, seconds: float, has_work: Callable[[], bool]) -> None:
        """Sleep until notified, or return at once if there is work. May wake spuriously."""
        self._asleep = True
        if not has_work():
            self._lock.acquire(timeout=seconds)
        self._asleep = False
