"""The phases of a recovery, for progress displays: the log is read, then queues are completed.

A progress callback receives bytes done and in total, and starts again with each phase. If it has a
method ``phase``, that receives a description when a phase begins.
"""

from __future__ import annotations

from typing import Final

READING: Final = "reading the log"
COMPLETING: Final = "completing queues and index"


def begin(progress: object, words: str) -> None:
    """Notify a callback that has the method ``phase``."""
    tell = getattr(progress, "phase", None)
    if tell is not None:
        tell(words)
