"""The pending status of one put, and the wake-up of a thread that works for all of them.

Both have minimal overhead, because handing over dominates a put's time. A
``concurrent.futures.Future`` costs a condition variable for each put and a lock for each wait.
"""

from __future__ import annotations

from collections.abc import Callable
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

    __slots__ = ("_answer", "_calls", "_lock", "_serve", "deadline", "end_offset")

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
        self._lock = Lock()
        self._lock.acquire()

    def finish(self, answer: PutStatus | Exception) -> None:
        """Set the status and wake the waiting thread; called once, after removal from the queue."""
        self._answer = answer
        with suppress(RuntimeError):  # an exception of a signal handler had it served twice
            self._lock.release()
        if self._calls is not None:
            self._call()

    def done(self) -> bool:
        """Whether the status is known."""
        self._ask(sleeps=False)
        return self._answer is not None

    def _ask(self, *, sleeps: bool) -> None:
        serve = self._serve
        if serve is None or self._answer is not None:
            return
        try:
            self._serve = None
            serve(self, sleeps)
        except BaseException:  # of a signal handler: the next call asks again
            self._serve = serve
            raise

    def result(self, timeout: float | None = None) -> PutStatus:
        """Wait for the status; raises ``TimeoutError``, or the error that was set."""
        self._ask(sleeps=timeout is None)
        if self._answer is None:
            if not self._lock.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
                raise TimeoutError
            self._lock.release()  # for the next waiting thread
        answer = self._answer
        if isinstance(answer, PutStatus):
            return answer
        assert answer is not None  # set before the lock is released
        raise answer

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


class Wakeup:
    """One thread sleeps, any thread notifies it; that is cheap while the thread is awake.

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
