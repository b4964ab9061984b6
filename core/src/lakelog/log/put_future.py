"""The future of an asynchronous put, for threads and for asyncio.

Puts that share a sync are answered together, and each event loop is woken once for all of its
waiters instead of once per put.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING, RUNNING
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lakelog.results import PutResult
from lakelog.runtime.gate import FastCondition

if TYPE_CHECKING:
    import asyncio


T = TypeVar("T")
_HERE: Final = threading.local()
"""Per thread; a context variable would be copied into tasks that a callback starts."""


def is_called_back() -> bool:
    """Whether this code runs in a put's callback, in the thread that answers other puts too."""
    return getattr(_HERE, "calls_back", False)


class AwaitableFuture(Future[T]):
    """A :class:`concurrent.futures.Future` that can also be awaited."""

    _state = PENDING
    _result: T | None = None
    _exception: BaseException | None = None

    def __init__(self) -> None:  # in place of the base's, for a condition variable that costs less
        self._condition = FastCondition()
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self._awaited: list[asyncio.Future[None]] | None = None

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in an event loop without blocking it; cancelling the wait cancels the put."""
        import asyncio

        if not self.done():
            here = asyncio.get_running_loop().create_future()
            self._tell(here)
            try:
                yield from here
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self.cancelled():
            raise asyncio.CancelledError
        return self.result()

    def _tell(self, waiting: asyncio.Future[None]) -> None:
        with self._condition:
            if not self.done():
                if self._awaited is None:
                    self._awaited = []
                self._awaited.append(waiting)
                return
        waiting.set_result(None)

    def _invoke_callbacks(self) -> None:
        """Called by the base class in a final state, unless :func:`settle` set the result."""
        if self._awaited:
            _wake(self._awaited)
        if self._done_callbacks:
            before, _HERE.calls_back = is_called_back(), True
            try:
                super()._invoke_callbacks()  # type: ignore[misc]  # it is the base's own
            finally:
                _HERE.calls_back = before


class PutFuture(AwaitableFuture[PutResult]):
    """The result of one message."""


class BatchFuture(AwaitableFuture[Sequence[PutResult]]):
    """The results of one batch."""


def begin(future: AwaitableFuture[Any]) -> bool:
    """As ``set_running_or_notify_cancel``, at half the cost."""
    with future._condition:
        if future._state == PENDING:
            future._state = RUNNING
            return True
    return future.set_running_or_notify_cancel()


def settle(futures: Iterable[PutFuture], results: Iterable[PutResult]) -> None:
    """Set each result, as ``set_result`` at a third of the cost; each future has begun."""
    awaited: list[asyncio.Future[None]] = []
    for future, result in zip(futures, results, strict=True):
        gate: FastCondition = future._condition  # type: ignore[assignment]  # of this class it is one
        with gate:
            future._result = result
            future._state = FINISHED
            if future._waiters:
                for waiter in future._waiters:
                    waiter.add_result(future)
            if gate.sleepers:
                gate.notify_all()
            if future._awaited:
                awaited += future._awaited
                future._awaited = None
        if future._done_callbacks:
            future._invoke_callbacks()
    if awaited:
        _wake(awaited)


def _wake(waiting: Iterable[asyncio.Future[None]]) -> None:
    """Wake each event loop once; a closed loop has no waiters any more."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for each in waiting:
        loops.setdefault(each.get_loop(), []).append(each)
    for loop, those in loops.items():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_finish, those)


def _finish(waiting: Iterable[asyncio.Future[None]]) -> None:
    for each in waiting:
        if not each.done():
            each.set_result(None)
