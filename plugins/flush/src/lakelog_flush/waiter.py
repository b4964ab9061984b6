"""The pending status of one put, with minimal overhead: handing over dominates a put's time.

A ``concurrent.futures.Future`` costs a condition variable for each put and a lock for each wait.

Wakes one sleeping thread; a notification is cheap while that thread is awake.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock
from typing import Any

from lakelog.results import PutStatus


class Waiter:
    """A put's pending status (see :class:`~lakelog.hooks.Pending`).

    :ivar end_offset: end of the bytes that must be durable
    :ivar deadline: end of the wait, by ``time.monotonic``
    :param serve: called once, before a thread sleeps here, or with ``False`` before a callback is
        added; it sets the status, or arranges for that
    """

    __slots__ = (
        "_answer",
        "_awaited",
        "_calls",
        "_lock",
        "_others",
        "_serve",
        "deadline",
        "end_offset",
    )

    def __init__(
        self,
        end_offset: int,
        deadline: float,
        serve: Callable[[Waiter, bool], object] | None = None,
    ) -> None:
        self.end_offset = end_offset
        self.deadline = deadline
        self._serve = serve
        self._answer: PutStatus | Exception | None = None
        self._calls: list[Callable[[Any], object]] | None = None
        self._awaited = False
        self._others: WakeChain | None = None
        self._lock = Lock()
        self._lock.acquire()

    def finish(self, answer: PutStatus | Exception) -> None:
        """Set the status and wake the waiting thread; called once, after removal from the queue."""
        self._answer = answer
        self._lock.release()
        if self._calls is not None:
            self._call()

    def settle(self, answer: PutStatus) -> bool:
        """Like :meth:`finish`, but a thread that sleeps here is left for :meth:`wake`.

        :returns: whether a thread sleeps here
        """
        if not self._awaited or self._calls is not None:
            self.finish(answer)
            return False
        self._answer = answer
        return True

    def wake(self, others: WakeChain | None) -> bool:
        """Wake the thread that sleeps here; it first continues with ``others``.

        :returns: whether it will; an exception may just have interrupted it
        """
        self._others = others
        self._lock.release()
        if self._calls is not None:
            self._call()
        return self._awaited

    def done(self) -> bool:
        """Whether the status is known."""
        self._ask(sleeps=False)
        return self._answer is not None

    def _ask(self, *, sleeps: bool) -> None:
        serve, self._serve = self._serve, None
        if serve is not None and self._answer is None:
            serve(self, sleeps)

    def result(self, timeout: float | None = None) -> PutStatus:
        """Wait for the status; raises ``TimeoutError``, or the error that was set."""
        self._ask(sleeps=timeout is None)
        if self._answer is None:
            self._sleep(timeout)
        answer = self._answer
        if isinstance(answer, PutStatus):
            return answer
        assert answer is not None  # set before the lock is released
        raise answer

    def _sleep(self, timeout: float | None) -> None:
        # `settle` reads `_awaited` before it writes `_answer`; here the order is reversed. So
        # either `settle` sees this thread, and `wake` wakes it, or `finish` releases the lock.
        self._awaited = True
        try:
            if self._answer is None:  # it may have been settled before `_awaited` was set
                if not self._lock.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
                    raise TimeoutError
                self._lock.release()  # for the next waiting thread
        finally:
            self._awaited = False
            if self._others is not None:
                self._others.go_on()

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Call ``fn`` when the status is known; at once if it is."""
        calls = self._calls
        if calls is None:
            calls = self._calls = []
        calls.append(fn)
        self._ask(sleeps=False)
        if self._answer is not None:
            self._call()

    def _call(self) -> None:
        """Run the callbacks; each is removed, and so called, by one thread only."""
        calls = self._calls or []
        while True:
            try:
                fn = calls.pop(0)
            except IndexError:
                return
            fn(self)


class WakeChain:
    """Wakes threads with known statuses one by one, each by the one before.

    Threads woken at once compete for the interpreter lock. Each then sleeps a second time, for that
    lock, and a put costs three thread switches instead of little more than one. Any thread may
    continue the chain at any time, so that a delayed or interrupted thread blocks no other.
    """

    __slots__ = ("_asleep", "_on_end")

    def __init__(self, on_end: Callable[[], object]) -> None:
        self._asleep: deque[Waiter] = deque()
        self._on_end = on_end

    def __bool__(self) -> bool:
        return bool(self._asleep)

    def is_over(self) -> bool:
        """Whether all are awake."""
        return not self._asleep

    def begin(self, waiters: Iterable[Waiter], answer: PutStatus) -> None:
        """Set the status of all, and wake the first sleeping thread."""
        self._asleep.extend([each for each in waiters if each.settle(answer)])
        self.go_on()

    def go_on(self) -> None:
        """Wake the next sleeping thread."""
        asleep = self._asleep
        if not asleep:
            return
        while asleep:
            try:
                waiter = asleep.popleft()
            except IndexError:  # another thread took the last one
                break
            if waiter.wake(self if asleep else None):
                break
        if not asleep:
            self._on_end()

    def end(self) -> None:
        """Wake all remaining threads."""
        while self._asleep:
            self.go_on()


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
