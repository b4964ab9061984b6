"""One put that waits, with as little around it as can be: most of a put's time is handing over.

A ``concurrent.futures.Future`` costs a condition variable for each put and a lock for each wait.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from lakelog.status import PutStatus


class Waiter:
    """What a put is given for its status (:class:`~lakelog.interfaces.Pending`).

    :ivar end_offset: end of what it wants to be durable
    :ivar deadline: when it stops waiting, by ``time.monotonic``
    """

    __slots__ = ("_answer", "_calls", "_lock", "deadline", "end_offset")

    def __init__(self, end_offset: int, deadline: float) -> None:
        self.end_offset = end_offset
        self.deadline = deadline
        self._answer: PutStatus | Exception | None = None
        self._calls: list[Callable[[Any], object]] | None = None
        self._lock = Lock()
        self._lock.acquire()

    def finish(self, answer: PutStatus | Exception) -> None:
        """Let the put go; once, by whoever took it out of the line."""
        self._answer = answer
        self._lock.release()
        if self._calls is not None:
            self._call()

    def done(self) -> bool:
        """Whether the status is known."""
        return self._answer is not None

    def result(self, timeout: float | None = None) -> PutStatus:
        """Wait for the status; raises ``TimeoutError``, or what it came to."""
        if self._answer is None:
            if not self._lock.acquire(timeout=-1 if timeout is None else max(timeout, 0)):
                raise TimeoutError
            self._lock.release()  # for the next one who waits
        answer = self._answer
        if isinstance(answer, PutStatus):
            return answer
        assert answer is not None  # it is set before the lock is released
        raise answer

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Call ``fn`` when the status is known; at once if it is."""
        calls = self._calls
        if calls is None:
            calls = self._calls = []
        calls.append(fn)
        if self._answer is not None:
            self._call()

    def _call(self) -> None:
        """Each call is taken out by one thread only, whoever comes first."""
        calls = self._calls or []
        while True:
            try:
                fn = calls.pop(0)
            except IndexError:
                return
            fn(self)
