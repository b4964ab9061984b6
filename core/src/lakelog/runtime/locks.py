"""Locks that stay usable after a signal handler has raised.

A signal handler may raise (Ctrl-C, a time limit) between the call that takes a lock and the block
that releases it. :class:`Mutex` is released then. A :class:`YieldLock` records its owner, and
exception handlers check :attr:`YieldLock.is_mine`.

:class:`YieldLock` is for short critical sections of threads that share one interpreter lock. A
thread that finds the lock held yields and tries again. With an ordinary lock, a holder that is
descheduled makes the others queue. Each release then wakes one of them, and every section costs a
context switch (a convoy). Here the holder continues at its next turn, and the following sections
run without a switch.
"""

from __future__ import annotations

import time
from _thread import RLock  # the type; threading.RLock is a function
from collections.abc import Callable
from typing import Final

_SLEEPS_SECONDS: Final = (*[0.0] * 8, 50e-6, 100e-6, 200e-6, 400e-6, 800e-6, 2e-3)
"""Sleeps between the attempts of a waiter; 0 yields, and the last one repeats.

They grow: 64 waiters that wake every 50 us take the interpreter from the owner, which then needs a
second for the system calls of a few milliseconds.
"""


class Mutex(RLock):  # type: ignore[misc]  # final in the stubs only
    """A lock for ``with`` statements.

    A signal handler that needs the lock of a block that it interrupts enters that block again,
    where it would wait for ever for an ordinary lock. So a block must be right wherever another
    call of it comes in between.

    Since CPython 3.14, a signal handler can run between ``__enter__`` of a ``threading.Lock`` and
    its block. An exception there passes by the ``with`` statement and leaves the lock acquired.
    Here ``__enter__`` is a function of Python, which releases the lock then. ``__exit__`` stays
    one of C: a signal handler could run at the begin of one of Python.
    """

    __slots__ = ()

    def __enter__(self) -> bool:  # type: ignore[override]  # without the arguments of acquire
        try:
            return self.acquire()
        except BaseException:
            if self._is_owned():  # type: ignore[attr-defined]  # threading.Condition calls it too
                self.release()
            raise


class YieldLock:
    """An unfair lock; its owner must not acquire it again.

    :ivar take: ``take(False)`` acquires the lock if it is free, and returns whether it did; bound
        to the lock itself, because a Python call costs half as much as a short section
    :ivar is_mine: whether this thread owns the lock
    """

    __slots__ = ("_lock", "is_mine", "release", "take")

    def __init__(self) -> None:
        self._lock = RLock()
        self.take = self._lock.acquire
        self.release = self._lock.release
        self.is_mine: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]  # threading.Condition calls it too; no public method returns the owner

    def acquire(self, timeout_seconds: float = -1) -> bool:
        """Acquire the lock; ``False`` on timeout. A negative timeout means none."""
        tries, start = 0, time.monotonic()
        while not self._lock.acquire(blocking=False):
            if 0 <= timeout_seconds < time.monotonic() - start:
                return False
            time.sleep(_SLEEPS_SECONDS[min(tries, len(_SLEEPS_SECONDS) - 1)])
            tries += 1
        return True

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
