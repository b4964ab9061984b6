"""The waiting puts, in order of arrival; all have the same time limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from lakelog.interfaces import AppendedPut
from lakelog_flush.waiter import Waiter

W = TypeVar("W", Waiter, AppendedPut)


class WaitQueue(Generic[W]):
    """A queue of waiting puts.

    Any thread appends to ``waiting`` without a lock. The thread that removes a put by a ``take``
    method must answer it.

    :ivar timeout_seconds: longest wait of each put
    :ivar waiting: the puts in order of arrival
    """

    def __init__(self, timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        self.waiting: deque[W] = deque()
        self._taking = Lock()

    def take_covered(self, flushed: int) -> list[W]:
        """Remove and return the puts at the front that end at or before offset ``flushed``.

        A durable put behind one that is not durable waits for the next sync, which follows at once.
        """
        taken, waiting = list[W](), self.waiting
        with self._taking:
            while waiting and waiting[0].end_offset <= flushed:
                taken.append(waiting.popleft())
        return taken

    def take_late(self, now: float) -> list[W]:
        """Remove and return the puts whose deadline is not after ``now`` (``time.monotonic``)."""
        with self._taking:
            return self._take(lambda waiter: waiter.deadline <= now)

    def take_all(self) -> list[W]:
        """Remove and return all puts."""
        with self._taking:
            return self._take(lambda _: True)

    def _take(self, wanted: Callable[[W], bool]) -> list[W]:
        waiting, taken = self.waiting, list[W]()
        while waiting and wanted(waiting[0]):
            taken.append(waiting.popleft())
        return taken

    def seconds_left(self, now: float) -> float:
        """Seconds until the first deadline, the earliest of all; without puts, the whole limit."""
        with self._taking:
            if self.waiting:
                return self.waiting[0].deadline - now
        return self.timeout_seconds
