"""The one way in which a store and its plugins start threads: a failure is an error of lakelog.

Python raises a bare ``RuntimeError`` where the system gives no thread (``EAGAIN``), and keeps the
work that was submitted to an executor: it would run later, when nobody expects it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import ParamSpec, TypeAlias, TypeVar

from lakelog.errors import ThreadNotStarted

AnyThread = TypeVar("AnyThread", bound=Thread)
P = ParamSpec("P")
Result = TypeVar("Result")
Submit: TypeAlias = "Callable[[Callable[[], None]], object]"
"""The ``submit`` of an executor; raises ``RuntimeError`` where no thread can be started."""


def started(thread: AnyThread) -> AnyThread:
    """Start ``thread``, and return it.

    Keep what is returned, not what was made: a thread that never started cannot be joined.
    Raises :class:`~lakelog.errors.ThreadNotStarted`; nothing runs then, and it can be tried again
    with a new thread.
    """
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise ThreadNotStarted(thread.name, error) from error
    return thread


def submitted(submit: Submit, name: str, work: Callable[[], Result]) -> Future[Result]:
    """The future of ``work`` in an executor, which may have to start a thread for it.

    :param name: of the thread, for the error

    Raises :class:`~lakelog.errors.ThreadNotStarted`; ``work`` is not done then, nor later.
    """
    future: Future[Result] = Future()
    try:
        submit(partial(_run, work, future))
    except (RuntimeError, MemoryError) as error:
        if future.cancel():  # or another thread of the pool has taken it from the queue
            raise ThreadNotStarted(name, error) from error
    return future


def soon_done(submit: Submit, name: str, work: Callable[[], Result]) -> Future[Result]:
    """:func:`submitted`; where no thread can be had, the caller does the work, now."""
    try:
        return submitted(submit, name, work)
    except ThreadNotStarted:
        future: Future[Result] = Future()
        _run(work, future)
        return future


async def in_thread(work: Callable[P, Result], *arguments: P.args, **named: P.kwargs) -> Result:
    """``asyncio.to_thread``, which raises :class:`~lakelog.errors.ThreadNotStarted`."""
    import asyncio  # only who has an event loop has it already

    hand_over = partial(asyncio.get_running_loop().run_in_executor, None)
    call = partial(copy_context().run, partial(work, *arguments, **named))
    return await asyncio.wrap_future(submitted(hand_over, "asyncio", call))


def _run(work: Callable[[], Result], future: Future[Result]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001  # it is the future's, as of every executor
        future.set_exception(error)
    else:
        future.set_result(result)
