"""The puts that wait, in the order in which they came; all wait equally long at most."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from lakelog.interfaces import AppendedPut
from lakelog_flush.waiter import Waiter

W = TypeVar("W", Waiter, AppendedPut)


class Line(Generic[W]):
    """Anybody joins without a lock; whoever takes a waiter out is the one to answer it.

    :ivar timeout_seconds: how long each waits at most
    :ivar waiting: in their order; to be looked at
    """

    def __init__(self, timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        self.waiting: deque[W] = deque()
        self._taking = Lock()

    def take_covered(self, flushed: int) -> list[W]:
        """Those at the front whose bytes are durable.

        One behind another that is not has to wait for the next sync, which comes at once.
        """
        taken, waiting = list[W](), self.waiting
        with self._taking:
            while waiting and waiting[0].end_offset <= flushed:
                taken.append(waiting.popleft())
        return taken

    def take_late(self, now: float) -> list[W]:
        """Those whose time is over."""
        with self._taking:
            return self._take(lambda waiter: waiter.deadline <= now)

    def take_all(self) -> list[W]:
        """Everyone."""
        with self._taking:
            return self._take(lambda _: True)

    def _take(self, wanted: Callable[[W], bool]) -> list[W]:
        waiting, taken = self.waiting, list[W]()
        while waiting and wanted(waiting[0]):
            taken.append(waiting.popleft())
        return taken

    def seconds_left(self, now: float) -> float:
        """Until the first one's time is over; nobody who joins later is sooner."""
        with self._taking:
            if self.waiting:
                return self.waiting[0].deadline - now
        return self.timeout_seconds
