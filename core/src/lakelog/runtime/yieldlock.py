"""A lock for short critical sections of threads that share one interpreter lock.

A thread that finds it taken gives up its turn and tries again. With an ordinary lock, one holder
that is switched off inside makes the others queue, each release then wakes one of them, and from
there on every section costs a change of threads (a convoy). Here the holder goes on when it is its
turn again, and the next sections run without a switch.

The exception of a signal's handler, Ctrl-C for one, can come between a call that takes a lock and
the block that lets it go. So the lock knows who has it: whoever is thrown out asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import RLock
from typing import Final

_YIELDS: Final = 64
"""How often a waiter only gives up its turn, before it sleeps between tries."""
_NAP_SECONDS: Final = 50e-6


class YieldLock:
    """Not fair: who comes first need not be first. Nobody takes it again who has it.

    :ivar take: ``take(False)`` takes the lock if it is free, and says whether it did; bound to the
        lock itself, since a call through Python costs half of what a short section does
    :ivar is_mine: whether this thread has it
    """

    __slots__ = ("_lock", "is_mine", "release", "take")

    def __init__(self) -> None:
        self._lock = RLock()
        self.take = self._lock.acquire
        self.release = self._lock.release
        self.is_mine: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]  # threading.Condition asks it, too: nothing public knows the holder

    def acquire(self, timeout_seconds: float = -1) -> bool:
        """Wait for the lock; ``False`` if it could not be had in time."""
        if self._lock.acquire(blocking=False):
            return True
        tries, start = 0, time.monotonic()
        while not self._lock.acquire(blocking=False):
            if 0 <= timeout_seconds < time.monotonic() - start:
                return False
            time.sleep(0 if tries < _YIELDS else _NAP_SECONDS)
            tries += 1
        return True

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
