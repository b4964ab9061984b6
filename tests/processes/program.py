"""What every program of these tests begins with, and how it ends."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import lakelog
from lakelog import Store
from lakelog.errors import LakelogError
from lakelog.runtime.threads import soon
from tests.processes.words import Journal

_PR_SET_PDEATHSIG: Final = 1
_PAUSE_SECONDS: Final = 0.02
OPENING_SECONDS: Final = 40.0

UNEXPECTED: Final = "UNEXPECTED"
"""The first word of a line that fails the test."""


def end_with_parent() -> None:
    """Nobody is left behind where a test run is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def opened(path: Path, journal: Journal, **how: Any) -> Store:
    """Open the store, however long it takes until somebody owns it or lets it go."""
    end = time.monotonic() + OPENING_SECONDS
    while True:
        try:
            return lakelog.open(path, **how)
        except LakelogError as error:
            if time.monotonic() > end:
                journal.tell(UNEXPECTED, "cannot open:", type(error).__name__, said(error))
                raise
            journal.tell("waits", type(error).__name__, said(error))
            time.sleep(_PAUSE_SECONDS)


def said(error: BaseException) -> str:
    return repr(str(error))


def guarded(journal: Journal, work: Callable[[], None]) -> None:
    """Work; whatever goes wrong is in the journal, and ends the program."""
    try:
        work()
    except BaseException as error:
        journal.tell(UNEXPECTED, type(error).__name__, repr(traceback.format_exc()))
        sys.stderr.write(traceback.format_exc())
        raise


def run(work: Callable[[Path, Journal, threading.Event, list[str]], None]) -> None:
    """Work until told to stop; the first arguments are the folder and the name of the journal."""
    end_with_parent()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: soon(stopping.set))
    folder, name, *more = sys.argv[1:]
    journal = Journal.opened(Path(folder), name)

    def all_of_it() -> None:
        work(Path(folder), journal, stopping, more)
        journal.tell("closed")

    guarded(journal, all_of_it)
