"""Thread operations that are safe in a signal handler.

A handler runs between any two steps of the main thread, also inside ``Event.wait``. ``Event.wait``
holds the lock that ``Event.set`` needs, so ``Event.set`` in a handler could deadlock.
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
