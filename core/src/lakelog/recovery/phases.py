"""What a recovery is at, for whoever shows its progress: the log is read, then queues completed.

A progress callback is told bytes, done and in all, and begins again with each phase. One that has a
method ``phase`` is told in words which one begins.
"""

from __future__ import annotations

from typing import Final

READING: Final = "reading the log"
COMPLETING: Final = "completing queues and index"


def begin(progress: object, words: str) -> None:
    """Tell a callback, if it wants to know."""
    tell = getattr(progress, "phase", None)
    if tell is not None:
        tell(words)
