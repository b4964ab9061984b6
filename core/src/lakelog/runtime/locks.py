"""Locks that stay usable after a signal handler has raised.

A signal handler may raise (Ctrl-C, a time limit) between the call that takes a lock and the block
that releases it. :class:`Mutex` is released then. A :class:`YieldLock` records its owner, and
exception handlers check :attr:`YieldLock.is_mine`.

:class:`YieldLock` is for short critical sections of threads that share one interpreter lock. A
thread that finds the lock held yields and tries again. With an ordinary lock, a holder that is
descheduled makes the others queue. Each release then wakes one of them, and every section costs a
context switch (a convoy). Here the holder continues at its next turn, and the following sections
run without a switch.

The collector may run a finalizer at any allocation of any thread, and the finalizer may put, or
close a store. So threads that wait for other threads use a :class:`WaitList` or a
:class:`LockFreeEvent`. They hold no lock while Python code runs; those of the standard library do.
"""

from __future__ import annotations

import time
from _thread import RLock, allocate_lock  # the type; threading.RLock is a function
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

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
            if self.is_mine():
                self.release()
            raise

    def is_mine(self) -> bool:
        """Whether this thread is in a block of it."""
        return bool(self._is_owned())  # type: ignore[attr-defined]  # threading.Condition calls it too


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


_LONGEST_NAP_S: Final = 1.0
"""The longest sleep without a look: a signal handler may end :meth:`WaitList.notify_all` early."""


class WaitList:
    """Threads that wait for a condition, without a lock.

    Each waiter sleeps at a lock of its own, which it has acquired and which a notifier releases.
    All changes of the list are single operations of the interpreter. A waiter adds its lock, and
    then checks the condition; a notifier is called after the condition has changed. So no
    notification is lost.
    """

    __slots__ = ("_gates",)

    def __init__(self) -> None:
        self._gates = list[Any]()

    def notify_all(self) -> None:
        """Have all waiters check their conditions."""
        gates = self._gates
        for gate in list(gates):
            with suppress(RuntimeError):  # it is released already
                gate.release()
            with suppress(ValueError):
                gates.remove(gate)

    def __bool__(self) -> bool:
        """Whether there are waiters."""
        return bool(self._gates)

    def wait_for(
        self,
        is_over: Callable[[], object],
        timeout_s: float | None = None,
        on_wait: Callable[[], object] | None = None,
    ) -> bool:
        """Sleep until ``is_over`` is true; ``False`` on timeout.

        :param is_over: must not change from true to false before this returns
        :param on_wait: called before each sleep
        """
        if is_over():
            return True
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            gate = allocate_lock()
            gate.acquire()
            nap_s = _LONGEST_NAP_S
            try:
                self._gates.append(gate)
                if is_over():
                    return True
                if on_wait is not None:
                    on_wait()
                if end is not None:
                    nap_s = min(nap_s, end - time.monotonic())
                    if nap_s <= 0:
                        return False
                gate.acquire(timeout=nap_s)
            finally:
                with suppress(ValueError):  # a notifier has removed it
                    self._gates.remove(gate)


class LockFreeEvent:
    """As :class:`threading.Event`, but it may be set in signal handlers and finalizers."""

    __slots__ = ("_is_set", "_waits")

    def __init__(self) -> None:
        self._is_set = False
        self._waits = WaitList()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake the waiters."""
        self._is_set = True
        self._waits.notify_all()

    def clear(self) -> None:
        """Clear it."""
        self._is_set = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until it is set; ``False`` on timeout."""
        return self._waits.wait_for(self.is_set, timeout_s)
