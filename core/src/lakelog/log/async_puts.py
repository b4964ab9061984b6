"""Waits for sync and copies in place of the callers of asynchronous puts.

Used if the flush strategy has no ``submit_later``, or if puts wait for copies. One thread waits
once for all messages that were appended during its former wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Thread, get_ident
from typing import Final, TypeAlias

from lakelog.log.put_future import PutFuture
from lakelog.runtime.threads import started
from lakelog_interfaces.errors import ThreadNotStarted

Submit: TypeAlias = "Callable[[Sequence[PutFuture]], object]"
MAX_WAITING: Final = 65_536
"""The largest number of waiting messages; a further caller blocks."""


class AsyncPutQueue:
    """Collects puts while earlier ones are being submitted; thread-safe.

    :param submit: submits the end of the last put, and settles all; may block
    """

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._waiting: deque[PutFuture] = deque()
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    def put(self, future: PutFuture) -> None:
        """Add an appended put for the thread; if none can be started, submit the put here."""
        with self._changed:
            while len(self._waiting) >= MAX_WAITING and self._is_elsewhere():
                self._changed.wait()
            if self._is_running():
                self._waiting.append(future)
                self._changed.notify_all()
                return
        self._submit([future])

    def _is_running(self) -> bool:
        if self._thread is None and not self._closed:
            thread = Thread(target=self._run, name="lakelog-put-async", daemon=True)
            with suppress(ThreadNotStarted):
                self._thread = started(thread)
        return self._thread is not None and not self._closed

    def _is_elsewhere(self) -> bool:
        """Whether another thread takes the waiting puts; false in a callback in that thread."""
        return not self._closed and self._thread is not None and self._thread.ident != get_ident()

    def _run(self) -> None:
        while burst := self._next_burst():
            self._submit(burst)

    def _next_burst(self) -> Sequence[PutFuture]:
        """The collected puts; empty once closed and drained."""
        with self._changed:
            while not (self._waiting or self._closed):
                self._changed.wait()
            return self._take()

    def _take(self) -> Sequence[PutFuture]:
        burst = list(self._waiting)
        self._waiting.clear()
        self._changed.notify_all()
        return burst

    def serve(self, _: PutFuture) -> None:
        """Submit the collected puts here: a callback waits for one, maybe in the thread itself."""
        with self._changed:
            burst = self._take()
        if burst:
            self._submit(burst)

    def close(self) -> None:
        """Submit the waiting puts, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
