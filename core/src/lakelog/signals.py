"""What the handler of a signal may ask of other threads' means.

A handler runs between any two steps of the main thread: in the middle of an ``Event.wait`` too,
which holds the lock that ``Event.set`` takes, so that to set it there could wait for ever.
"""

from __future__ import annotations

from _thread import start_new_thread
from collections.abc import Callable

from lakelog.errors import ThreadNotStarted


def soon(act: Callable[[], object]) -> None:
    """Call ``act`` in a moment, from a thread of its own; to start it takes no lock of Python's.

    Raises :class:`~lakelog.errors.ThreadNotStarted`.
    """
    try:
        start_new_thread(act, ())
    except RuntimeError as error:
        raise ThreadNotStarted("lakelog-signal", error) from error
