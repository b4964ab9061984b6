"""A lock for short critical sections of threads that share one interpreter lock.

A thread that finds it taken gives up its turn and tries again. With an ordinary lock, one holder
that is switched off inside makes the others queue, each release then wakes one of them, and from
there on every section costs a change of threads (a convoy). Here the holder goes on when it is its
turn again, and the next sections run without a switch.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import Final

_YIELDS: Final = 64
"""How often a waiter only gives up its turn, before it sleeps between tries."""
_NAP_SECONDS: Final = 50e-6


class YieldLock:
    """Not reentrant, and not fair: who comes first need not be first.

    :ivar take: ``take(False)`` takes the lock if it is free, and says whether it did; bound to the
        lock itself, since a call through Python costs half of what a short section does
    """

    __slots__ = ("_lock", "release", "take")

    def __init__(self) -> None:
        self._lock = Lock()
        self.take = self._lock.acquire
        self.release = self._lock.release

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
