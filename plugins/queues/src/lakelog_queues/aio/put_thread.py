"""A thread that passes an event loop's puts to a store, in order.

``put_async`` itself may block: for its turn to append, for a new segment, or for room if very many
puts wait. The thread takes all queued puts at once, and wakes the loop once for them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from typing import Any, Final, TypeAlias

from lakelog.errors import PutRefused, ThreadNotStarted
from lakelog.log.put_future import AwaitableFuture
from lakelog.runtime.threads import started
from lakelog.status import PutStatus

Begun: TypeAlias = "asyncio.Future[AwaitableFuture[Any]]"
Given: TypeAlias = "tuple[Callable[[Any], AwaitableFuture[Any]], Any, Begun]"
MOST_AT_ONCE: Final = 256
"""Number of puts that are begun before the loop is notified."""


class PutThread:
    """The queue of puts from one event loop, and its thread."""

    def __init__(self) -> None:
        self._given: deque[Given] = deque()
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    async def put(self, begin: Callable[[Any], AwaitableFuture[Any]], what: Any) -> Any:
        """Have the thread call ``begin(what)``; then wait for the result of its future.

        Cancellation withdraws a put that has not begun yet.
        """
        begun: Begun = asyncio.get_running_loop().create_future()
        self._give((begin, what, begun))
        return await (await begun)

    def _give(self, given: Given) -> None:
        with self._changed:
            if self._closed:
                raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
            if self._thread is None:
                self._start()
            self._given.append(given)
            if len(self._given) == 1:
                self._changed.notify()

    def _start(self) -> None:
        try:
            self._thread = started(Thread(target=self._run, name="lakelog-aio", daemon=True))
        except ThreadNotStarted as error:
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, str(error)) from error

    def _run(self) -> None:
        while burst := self._next():
            _schedule_finish([(each, _begin(each)) for each in burst])

    def _next(self) -> list[Given]:
        """The queued puts; empty once the queue is closed and drained."""
        with self._changed:
            while not (self._given or self._closed):
                self._changed.wait()
            count = min(len(self._given), MOST_AT_ONCE)
            return [self._given.popleft() for _ in range(count)]

    def close(self) -> None:
        """Begin the queued puts, then stop; must not be called in the event loop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()


def _begin(given: Given) -> AwaitableFuture[Any] | Exception | None:
    begin, what, begun = given
    if begun.cancelled():
        return None
    try:
        return begin(what)
    except Exception as error:  # noqa: BLE001  # it is passed to the awaiting task
        return error


def _schedule_finish(those: list[tuple[Given, AwaitableFuture[Any] | Exception | None]]) -> None:
    loop = those[0][0][2].get_loop()
    with suppress(RuntimeError):  # no task waits in a closed loop
        loop.call_soon_threadsafe(_finish, those)


def _finish(those: list[tuple[Given, AwaitableFuture[Any] | Exception | None]]) -> None:
    """Give each waiting task the future of its put; runs in the loop."""
    for (_, _, begun), found in those:
        if begun.cancelled():
            continue
        if isinstance(found, AwaitableFuture):
            begun.set_result(found)
        elif found is not None:
            begun.set_exception(found)
