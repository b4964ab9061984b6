"""Bounds of time: a stop that takes too long ends the process, and a signal ends an opening."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from types import FrameType
from typing import Final, NoReturn

from lakelog.errors import ThreadNotStarted
from lakelog.runtime.threads import started
from lakelog_daemon.logs import LogWriter, fields, stop_log

_LOG: Final = logging.getLogger("lakelog.serve")
_LAST_WORDS_SECONDS: Final = 0.5


class Deadline:
    """Inside of ``with``: the process ends if that takes longer, whatever it hangs in."""

    def __init__(self, seconds: float, code: int, log: LogWriter) -> None:
        """Keep what is needed.

        :param code: the exit code then
        :param log: has its last words written
        """
        self._seconds = seconds
        self._code = code
        self._log = log
        self._timer = Timer(seconds, self._over)
        self._timer.name, self._timer.daemon = "lakelog-deadline", True

    def __enter__(self) -> Deadline:
        try:
            started(self._timer)
        except ThreadNotStarted as error:
            _LOG.warning("nothing bounds how long this stop takes: %s", error)
        return self

    def __exit__(self, *_raised: object) -> None:
        self._timer.cancel()

    def _over(self) -> None:
        what = "not stopped after %.1f s: ends as it is; the next owner recovers the store"
        _LOG.critical(what, self._seconds, extra=fields("late"))
        stop_log(self._log, _LAST_WORDS_SECONDS)
        os._exit(self._code)


@contextmanager
def ending_by(number: signal.Signals) -> Iterator[None]:
    """Let a signal do what Ctrl-C does; main thread only."""
    former = signal.signal(number, _interrupt)
    try:
        yield
    finally:
        signal.signal(number, former)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
