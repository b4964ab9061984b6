"""What the handler of a signal may ask of other threads' means.

A handler runs between any two steps of the main thread: in the middle of an ``Event.wait`` too,
which holds the lock that ``Event.set`` takes, so that to set it there could wait for ever.
"""

from __future__ import annotations

import signal
from _thread import start_new_thread
from collections.abc import Callable
from functools import partial
from traceback import walk_tb
from types import CodeType

from lakelog.errors import ThreadNotStarted


def soon(act: Callable[[], object]) -> None:
    """Call ``act`` in a moment, from a thread of its own; to start it takes no lock of Python's.

    Raises :class:`~lakelog.errors.ThreadNotStarted`.
    """
    try:
        start_new_thread(act, ())
    except RuntimeError as error:
        raise ThreadNotStarted("lakelog-signal", error) from error


def raised_by_handler(error: BaseException) -> bool:
    """Whether ``error`` passed through the handler of a signal: it is no fault of who was called.

    The handler is known by its code, among the frames that the error has passed through.
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
