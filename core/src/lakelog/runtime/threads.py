"""Starts threads for the store and its plugins, and reports failures as lakelog errors.

Python raises a bare ``RuntimeError`` if the system refuses a thread (``EAGAIN``). An executor also
keeps the submitted work, and would run it later, when the caller no longer expects it.

A signal handler starts one by :func:`soon`, which takes no lock. A handler runs between any two
steps of the main thread, also inside ``Event.wait``. ``Event.wait`` holds the lock that
``Event.set`` needs, so ``Event.set`` in a handler could deadlock.
"""

from __future__ import annotations

import logging
import signal
import sys
from _thread import start_new_thread
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from threading import Thread
from traceback import walk_tb
from types import CodeType
from typing import Final, ParamSpec, TypeAlias, TypeVar

from lakelog.errors import StoreError, ThreadNotStarted

_LOG: Final = logging.getLogger("lakelog")

AnyThread = TypeVar("AnyThread", bound=Thread)

P = ParamSpec("P")

Result = TypeVar("Result")

Submit: TypeAlias = "Callable[[Callable[[], None]], object]"
"""The ``submit`` of an executor; raises ``RuntimeError`` if no thread can be started."""


_PATCHED: Final = {
    "gevent.monkey": ("is_module_patched", ("threading", "_thread", "queue")),
    "eventlet.patcher": ("is_monkey_patched", ("thread",)),
}
_WAYS_ON: Final = {
    "gevent.monkey": "patch_all(thread=False, queue=False)",
    "eventlet.patcher": "monkey_patch(thread=False)",
}


def check_interpreter() -> None:
    """Refuse an interpreter in which the store's threads and locks do not work.

    A greenlet that waits for another process stops all greenlets of its thread, among them those
    that took the place of the store's threads, so an open would never return. Locks and counters
    rely on the interpreter lock.

    Raises :class:`~lakelog.errors.StoreError`.
    """
    for name, (is_patched, kinds) in _PATCHED.items():
        module = sys.modules.get(name)
        found = [each for each in kinds if module and getattr(module, is_patched)(each)]
        if found:
            package = name.partition(".")[0]
            raise StoreError(
                f"{package} has replaced the standard library's {' and '.join(found)}, and without "
                f"real threads the store would wait for ever: call {package}'s {_WAYS_ON[name]}, "
                "or open the store in a process without it"
            )
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise StoreError(
            "this Python runs without its interpreter lock, on which the store's locks rely: "
            "start it with PYTHON_GIL=1 or -X gil=1, or use a build that is not free-threaded"
        )


def started(thread: AnyThread) -> AnyThread:
    """Start ``thread`` and return it.

    Store the returned thread only: one that never started cannot be joined.

    Raises :class:`~lakelog.errors.ThreadNotStarted`; nothing runs then. Retry with a new thread.
    """
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise ThreadNotStarted(thread.name, error) from error
    return thread


def submitted(submit: Submit, name: str, work: Callable[[], Result]) -> Future[Result]:
    """Submit ``work`` to an executor, which may have to start a thread; return its future.

    :param name: name of the thread, for the error

    Raises :class:`~lakelog.errors.ThreadNotStarted`; ``work`` then never runs.
    """
    future: Future[Result] = Future()
    try:
        submit(partial(_run, work, future))
    except (RuntimeError, MemoryError) as error:
        if future.cancel():  # false if a thread of the pool has taken it from the queue
            raise ThreadNotStarted(name, error) from error
    return future


def soon_done(submit: Submit, name: str, work: Callable[[], Result]) -> Future[Result]:
    """Like :func:`submitted`, but runs ``work`` in the caller if no thread can be started."""
    try:
        return submitted(submit, name, work)
    except ThreadNotStarted:
        future: Future[Result] = Future()
        _run(work, future)
        return future


class Shortage:
    """Logs a lack that a thread gets over by itself: once, and again after its end.

    The text is a clear sentence: what waits, and the error, which names the cause.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self.is_there = False

    def begin(self, error: Exception) -> None:
        """Note the lack; the caller tries again later."""
        if not self.is_there:
            self.is_there = True
            _LOG.warning(
                "%s, and tried again until it works: %s", self._what, str(error) or repr(error)
            )

    def end(self) -> None:
        """Note that the work was done."""
        if self.is_there:
            self.is_there = False
            _LOG.info("%s no longer", self._what)


async def in_thread(work: Callable[P, Result], *arguments: P.args, **named: P.kwargs) -> Result:
    """Like ``asyncio.to_thread``, but raises :class:`~lakelog.errors.ThreadNotStarted`."""
    import asyncio  # callers with an event loop have imported it already

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


def soon(act: Callable[[], object]) -> None:
    """Call ``act`` soon, in a thread of its own; starting it takes no Python lock.

    Raises :class:`~lakelog.errors.ThreadNotStarted`.
    """
    try:
        start_new_thread(act, ())
    except RuntimeError as error:
        raise ThreadNotStarted("lakelog-signal", error) from error


def raised_by_handler(error: BaseException) -> bool:
    """Whether ``error`` passed through a signal handler, and so is not a fault of the called code.

    The handler is recognised by its code object among the frames of the traceback.
    """
    codes = {_code(signal.getsignal(each)) for each in signal.valid_signals()} - {None}
    return any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))


def _code(handler: object) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func
    for each in (handler, getattr(handler, "__func__", None), type(handler).__call__):
        code = getattr(each, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
