"""Commits what was written for one table, once.

After any error of a commit the table is read again, and only what it says decides:

- it has this commit: done
- its position is where this pass began: the same files are committed again, on its new version
- its position is elsewhere: somebody else landed the range; these files are not of the table
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from typing import Final

from lakelog_lake.errors import Conflict, TooManyConflicts, Unreachable
from lakelog_lake.landing.reaching import reaching, said
from lakelog_lake.sinks.base import Head, Sink
from lakelog_lake.tables.file_facts import FileFacts, discard
from lakelog_lake.tables.position import Position

_log = logging.getLogger("lakelog_lake")
_TRIES: Final = 20
_TRIES_AFTER_ERRORS: Final = 5
"""Of those, so many after anything but a conflict."""
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0


def commit(
    sink: Sink, head: Head, store: str, files: Sequence[FileFacts], position: Position
) -> bool:
    """Whether the range landed by this commit.

    Raises :class:`~lakelog_lake.errors.TooManyConflicts` and
    :class:`~lakelog_lake.errors.Unreachable`.
    """
    began, refused = _mark(head), 0
    pause = _FIRST_PAUSE_SECONDS
    failure: Exception | None = None
    for _ in range(_TRIES):
        try:
            sink.commit(head, store, files, position)
        except Exception as error:  # noqa: BLE001  # whatever it was, the table says what came of it
            failure = error
            refused += not isinstance(error, Conflict)
        else:
            return True
        with reaching(sink.name):
            head = sink.head(store)
        if _mark(head) == (position.commit, position.end):
            return True
        if _mark(head) != began:
            discard(files)
            return False
        if refused == _TRIES_AFTER_ERRORS and failure is not None:
            raise Unreachable(sink.name, said(failure)) from failure
        _log.info("%s: trying again after %r", sink.name, failure)
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
    raise TooManyConflicts(
        f"{sink.name} took no commit in {_TRIES} tries; the last error was: {failure}"
    ) from failure


def _mark(head: Head) -> tuple[int, int] | None:
    """Positions that rows told have no commit."""
    return None if head.position is None else (head.position.commit, head.position.end)
