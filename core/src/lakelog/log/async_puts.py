"""Asynchronous puts: bursts become batches, appended by one thread in the order of the calls.

If results come from another thread anyway, a put that finds no other in progress is appended by
its caller: a change of threads takes longer than the append.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Thread, get_ident
from typing import Final, TypeAlias

from lakelog.errors import PutRefused, ThreadNotStarted
from lakelog.log.put_future import PutFuture, begin
from lakelog.message import Message
from lakelog.runtime.gate import FastCondition
from lakelog.runtime.threads import started
from lakelog.status import PutStatus

Burst: TypeAlias = "list[tuple[Message, PutFuture]]"
MAX_BURST: Final = 1024
MAX_WAITING: Final = 65_536
"""A caller waits while this many messages wait before its own."""


class AsyncPutQueue:
    """Collects messages while earlier ones are being appended.

    :param direct: whether ``put_burst`` never waits for a disk, and results come later
    """

    def __init__(self, put_burst: Callable[[Burst], None], *, direct: bool = False) -> None:
        self._put_burst = put_burst
        self._direct = direct
        self._last: PutFuture | None = None
        self._appending = False
        self._waiting: deque[tuple[Message, PutFuture]] = deque()
        self._changed = FastCondition()
        self._closed = False
        self._thread: Thread | None = None
        self._busy = 0

    def put(self, message: Message) -> PutFuture:
        """Queue ``message``; its future receives the result or error of the put."""
        future = PutFuture()
        with self._changed:
            alone = self._is_alone(message)
            if not alone:
                self._await_room()
            self._take(message, future, alone)
        if alone:
            self._run_burst([(message, future)])
        return future

    def _take(self, message: Message, future: PutFuture, alone: bool) -> None:
        self._last = future
        if alone:
            self._appending = True
            return
        self._waiting.append((message, future))
        if self._changed.sleepers:
            self._changed.notify_all()

    def _is_alone(self, message: Message) -> bool:
        """Whether the caller appends it: no other message is waiting or being appended."""
        if not self._direct or self._appending or self._waiting or self._closed:
            return False
        if not getattr(message, "wait_store_ok", False):
            return False
        return self._last is None or self._last.done()

    def _await_room(self) -> None:
        """Wait while the queue is full; not in a callback, whose own thread empties it."""
        while len(self._waiting) >= MAX_WAITING and not self._closed and self._busy != get_ident():
            self._changed.wait()
        if self._thread is None or self._closed:
            self._start()

    def _start(self) -> None:
        if self._closed:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        if self._thread is None:
            try:
                self._thread = started(
                    Thread(target=self._run, name="lakelog-put-async", daemon=True)
                )
            except ThreadNotStarted as error:
                raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, str(error)) from error

    def _run(self) -> None:
        while burst := self._next_burst():
            self._run_burst(burst)

    def _run_burst(self, burst: Burst) -> None:
        self._busy = get_ident()
        try:
            begun = [each for each in burst if begin(each[1])]
            if begun:
                self._put(begun)
        finally:
            with self._changed:
                self._appending, self._busy = False, 0
                if self._waiting or self._closed:
                    self._changed.notify_all()

    def _put(self, burst: Burst) -> None:
        """Put a burst; on any error its futures are settled, and the next burst follows."""
        try:
            self._put_burst(burst)
        except Exception as error:  # noqa: BLE001  # it is handed to those who wait
            fail_all([future for _, future in burst if not future.done()], error)

    def _next_burst(self) -> Burst:
        """The collected messages; empty once closed and drained."""
        with self._changed:
            while self._appending or not (self._waiting or self._closed):
                self._changed.wait()
            waiting = self._waiting
            self._appending = bool(waiting)
            if len(waiting) > MAX_BURST:
                burst = [waiting.popleft() for _ in range(MAX_BURST)]
            else:
                burst = list(waiting)
                waiting.clear()
            self._changed.notify_all()
        return burst

    def close(self) -> None:
        """Append the waiting messages, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()


def fail_all(futures: Sequence[PutFuture], error: Exception) -> None:
    """Set ``error`` in all futures."""
    for future in futures:
        future.set_exception(error)
