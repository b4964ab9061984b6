"""Limits similar log lines: a failing disk or a looping client causes one line per message."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import attrs

MOST_LINES: Final = 10
INTERVAL_S: Final = 5.0


@attrs.define
class _Kind:
    """The number of lines of one message text since the start of an interval."""

    begun_s: float
    lines: int = 0
    left_out: int = 0


class LineLimit(logging.Filter):
    """Passes at most ``MOST_LINES`` records of one message text per interval, for any arguments.

    The first record of a later interval has the number of dropped ones.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a record."""
        now_s = self._clock()
        kind = self._kinds.setdefault(record.msg, _Kind(now_s))
        if now_s - kind.begun_s >= INTERVAL_S:
            if kind.left_out:
                record.msg, record.args = f"{record.getMessage()} (and {kind.left_out} more)", ()
            kind.begun_s, kind.lines, kind.left_out = now_s, 0, 0
        if kind.lines >= MOST_LINES:
            kind.left_out += 1
            return False
        kind.lines += 1
        return True
