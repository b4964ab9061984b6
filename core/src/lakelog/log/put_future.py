"""The future of an asynchronous put, for threads and for asyncio.

Puts that share a sync are answered together, and each event loop is woken once for all of its
waiters instead of once per put.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from lakelog.runtime.gate import FastCondition
from lakelog_format.results import PutResult
from lakelog_format.status import PutStatus
from lakelog_interfaces.errors import StrategyFailed

if TYPE_CHECKING:
    import asyncio


T = TypeVar("T")
Serve: TypeAlias = "Callable[[PutFuture], object]"
_HERE: Final = threading.local()
"""Per thread; a context variable would be copied into tasks that a callback starts."""


def is_called_back() -> bool:
    """Whether this code runs in a put's callback, in the thread that answers other puts too."""
    return getattr(_HERE, "calls_back", False)


class AwaitableFuture(Future[T]):
    """A :class:`concurrent.futures.Future` that can also be awaited."""

    _state = RUNNING  # its message is in the log, or refused: it cannot be cancelled
    _result: T | None = None
    _exception: BaseException | None = None

    def __init__(self) -> None:  # in place of the base's, for a condition variable that costs less
        self._condition = FastCondition()
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self._awaited: list[asyncio.Future[None]] | None = None

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in an event loop without blocking it."""
        import asyncio

        if not self.done():
            here = asyncio.get_running_loop().create_future()
            self._tell(here)
            yield from here
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
    """The result of one message.

    :ivar appended: its result if the message is in the log, without the outcome of the flush
    :ivar end_offset, deadline: see ``AppendedPut`` of ``lakelog.interfaces``
    """

    appended: PutResult
    end_offset: int
    deadline: float

    def result(self, timeout: float | None = None) -> PutResult:
        """As in the base, without its lock where the result is known."""
        if self._state == FINISHED and self._exception is None:
            return cast("PutResult", self._result)
        serve: Serve | None = getattr(_HERE, "serve", None)
        if serve is not None:  # in a callback, whose thread must not wait for itself
            serve(self)
        return super().result(timeout)


class BatchFuture(AwaitableFuture[Sequence[PutResult]]):
    """The results of one batch."""


def settle(futures: Iterable[PutFuture], results: Iterable[PutResult]) -> None:
    """Set each result, as ``set_result`` at a third of the cost."""
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


def settle_appended(
    futures: Sequence[PutFuture], outcome: PutStatus | Exception, serve: Serve | None = None
) -> None:
    """Settle the futures of messages that are in the log; an event loop is woken once for all.

    :param serve: called by a callback that waits for a put, in the thread that would settle it
    """
    before, _HERE.serve = getattr(_HERE, "serve", None), serve
    try:
        if isinstance(outcome, PutStatus):
            results = [future.appended for future in futures]
            if outcome is not PutStatus.PUT_OK:
                for result in results:
                    result.status = outcome
            settle(futures, results)
            return
        for future in futures:
            error = outcome
            if isinstance(outcome, StrategyFailed):
                future.appended.status = outcome.status
                error = outcome.of([future.appended])
            future.set_exception(error)
    finally:
        _HERE.serve = before


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
