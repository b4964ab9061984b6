"""The future of an asynchronous put, for threads and for asyncio.

Puts that share a sync are answered together, and each event loop is woken once for all of its
waiters instead of once per put.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import InvalidStateError
from concurrent.futures._base import FINISHED, RUNNING
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from lakelog.accelerate import current
from lakelog.errors import StrategyFailed
from lakelog.results import PutResult, PutStatus
from lakelog.runtime.forks import OfThisProcess
from lakelog.runtime.threads import LockFreeFuture, wake_waiting

if TYPE_CHECKING:
    import asyncio


T = TypeVar("T")
Serve: TypeAlias = "Callable[[PutFuture], object]"
Late: TypeAlias = "Callable[[PutStatus, Any], Exception]"
"""Builds the error of a put from its status and what it would return."""
_HERE: Final = threading.local()
"""Per thread; a context variable would be copied into tasks that a callback starts."""


def is_called_back() -> bool:
    """Whether this code runs in a callback of a put, in a thread that also settles other puts."""
    return getattr(_HERE, "calls_back", False)


class AwaitableFuture(OfThisProcess, LockFreeFuture[T]):
    """A :class:`concurrent.futures.Future` that can also be awaited."""

    _state = RUNNING  # it cannot be cancelled: the message is in the log already, or refused
    _awaited: Sequence[asyncio.Future[None]] = ()

    def done(self) -> bool:
        """Whether it is settled."""
        return self._state == FINISHED

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in an event loop without blocking it."""
        import asyncio

        if self._state != FINISHED:
            here = asyncio.get_running_loop().create_future()
            self.__dict__.setdefault("_awaited", []).append(here)
            if self._state != FINISHED:
                yield from here
        return self.result()

    def set_exception(self, exception: BaseException | None) -> None:
        """As in the base class; a settled future keeps its outcome.

        It is settled twice if a strategy raises after it took the put.
        """
        with suppress(InvalidStateError):
            super().set_exception(exception)

    def _invoke_callbacks(self) -> None:
        """Called by the base class in a final state, unless :func:`settle` set the result."""
        _wake(self._awaited)
        super()._invoke_callbacks()

    def _call(self) -> None:
        _call((self,))


class PutFuture(AwaitableFuture[PutResult]):
    """The result of one message.

    :ivar appended: the result of a message in the log, before the outcome of the flush is known
    :ivar end_offset: see :class:`~lakelog.hooks.AppendedPut`, also for ``deadline``
    """

    appended: PutResult
    end_offset: int
    deadline: float

    def result(self, timeout: float | None = None) -> PutResult:
        """As in the base class, but without a lock if the result is known.

        :param timeout: in seconds
        """
        if self._state == FINISHED and self._exception is None:
            return cast("PutResult", self._result)
        serve: Serve | None = getattr(_HERE, "serve", None)
        if serve is not None:  # in a callback, whose thread must not wait for itself
            serve(self)
        return super().result(timeout)


class BatchFuture(AwaitableFuture[Sequence[PutResult]]):
    """The results of one batch."""


def settle_new(future: PutFuture) -> None:
    """Set the result of a future that no other code has yet, so that nothing waits for it."""
    future._result = future.appended
    future._state = FINISHED


def settle(futures: Iterable[PutFuture]) -> None:
    """Set the result of each to ``appended``, then wake its waiters and run its callbacks."""
    awaited, called = list[Any](), list[PutFuture]()
    accelerator = current()
    if accelerator is not None:
        waited = accelerator.settle(futures, FINISHED, awaited, called)
    else:
        waited = list[PutFuture]()
        for future in futures:
            # The state comes first: whoever begins to wait adds itself, then checks it.
            future._result = future.appended
            future._state = FINISHED
            if future._gate is not None:
                waited.append(future)
            awaited += future._awaited
            if future._done_callbacks:
                called.append(future)
    wake_waiting(waited)
    _wake(awaited)
    _call(called)


def settle_appended(
    futures: Sequence[PutFuture],
    outcome: PutStatus | Exception,
    serve: Serve | None = None,
    late: Late | None = None,
) -> None:
    """Settle the futures of messages that are in the log; an event loop is woken once for all.

    :param outcome: the status of all, or the error of the flush strategy or replicator
    :param serve: called with a put for which a callback waits, in the thread that would settle it
    :param late: builds the error of a put with another status than ``PUT_OK``; ``None`` returns it
    """
    before, _HERE.serve = getattr(_HERE, "serve", None), serve
    try:
        if isinstance(outcome, PutStatus):
            if outcome is not PutStatus.PUT_OK:
                for future in futures:
                    future.appended.status = outcome
                if late is not None:
                    for future in futures:
                        future.set_exception(late(outcome, future.appended))
                    return
            settle(futures)
            return
        for future in futures:
            error = outcome
            if isinstance(outcome, StrategyFailed):
                future.appended.status = outcome.status
                error = outcome.of([future.appended])
            future.set_exception(error)
    finally:
        _HERE.serve = before


def _call(futures: Iterable[AwaitableFuture[Any]]) -> None:
    """Run the callbacks."""
    before, _HERE.calls_back = is_called_back(), True
    try:
        for future in futures:
            LockFreeFuture._call(future)
    finally:
        _HERE.calls_back = before


def _wake(waiting: Iterable[asyncio.Future[None]]) -> None:
    """Wake each event loop once; closed loops are ignored."""
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
