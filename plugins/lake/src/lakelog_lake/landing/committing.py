"""Commits the files of one pass to one table exactly once.

After a failed commit the table is read again, and the next step depends on its position:

- it is the position of this commit: the commit was done
- it is the position at the start of this pass: commit the same files again, on the new version
- it is any other position: another dispatcher landed the range, or went on behind this commit. The
  history of the table shows which. Files are removed only if it shows that no version that the
  table keeps has them; otherwise they stay, and ``lake expire`` removes what nothing lists

Before each try the layout of the files is compared with that of the version to which they are
committed: somebody may have changed columns or partitions since they were written.

If many dispatchers of different stores commit to one table concurrently, most tries conflict, and
each writes metadata that is then discarded. :class:`CommitLock` makes the dispatchers of one
machine commit one after another.

Catalogs, deltalake and disks raise many error classes, some with a traceback in their text. They
are converted to errors of lakelog with the table and a remedy.
"""

from __future__ import annotations

import fcntl
import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import attrs

from lakelog.errors import LakelogError, raised_by_handler
from lakelog_lake.errors import (
    Conflict,
    DemandsUnmet,
    LayoutChanged,
    SparkLost,
    TooManyConflicts,
    Unreachable,
    uncolored,
)
from lakelog_lake.sinks.base import Head, Sink
from lakelog_lake.tables.data_files import FileFacts, discard
from lakelog_lake.tables.position import Position, lists

_MOST: Final = 300
_CAUSE: Final = "\u21b3"
_MESSAGE: Final = re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
_NETWORK: Final = ("py4j.protocol", "Py4JNetworkError")


def is_lost(error: BaseException) -> bool:
    """Whether ``error`` means that the connection to the JVM is closed.

    The libraries of catalogs do not raise these classes for their own connections.
    """
    kind = type(error)
    return isinstance(error, ConnectionError) or (kind.__module__, kind.__name__) == _NETWORK


@contextmanager
def table_errors(table: str) -> Iterator[None]:
    """Convert errors of the block to :class:`Unreachable`, except lakelog's own errors.

    Raises :class:`SparkLost` if the connection to the JVM is closed.
    """
    try:
        yield
    except LakelogError:
        raise
    except Exception as error:
        if raised_by_handler(error):
            raise
        if is_lost(error):
            raise SparkLost(error_text(error)) from error
        raise Unreachable(table, error_text(error)) from error


def error_text(error: BaseException) -> str:
    """The first line of an error's text; its class comes first, except for errors of the system."""
    text = uncolored(str(error)).strip()
    first = (_causes(text) if _CAUSE in text else text.partition("\n")[0])[:_MOST]
    if isinstance(error, OSError) and error.strerror:
        return first
    return f"{type(error).__name__}: {first}"


def _causes(text: str) -> str:
    """Join deltalake's causes, one per line, of which the last may be a server's XML."""
    *causes, last = (each.strip() for each in text.split(_CAUSE))
    message = _MESSAGE.search(last)
    return ": ".join([*causes, message[1] if message else last.partition("\n")[0]])


_log = logging.getLogger("lakelog_lake")
_TRIES: Final = 20
_TRIES_AFTER_ERRORS: Final = 5
"""Most tries after errors other than conflicts."""
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0
_TURN_SECONDS: Final = 0.03
"""Mean pause between two attempts to take the lock of :class:`CommitLock`."""


@attrs.frozen
class CommitLock:
    """A lock on a file; the system releases the lock when the process that holds it ends.

    :ivar on_wait: called repeatedly while another process holds the lock
    """

    path: Path
    on_wait: Callable[[str], None] = lambda _: None

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the lock during the block; raises ``OSError`` if the file cannot be opened."""
        with self.path.open("ab") as file:
            while not _is_locked(file):
                self.on_wait("waits for its turn")
                time.sleep(_TURN_SECONDS * random.uniform(0.5, 1.5))
            yield


def _is_locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def commit(
    sink: Sink,
    head: Head,
    store: str,
    files: Sequence[FileFacts],
    position: Position,
    commit_lock: CommitLock | None = None,
) -> bool:
    """Commit; return whether this commit, and not another dispatcher's, landed the range.

    :param head: the version of the table on which the pass began
    :param store: the identity of the store
    :param position: the new position of the store
    :param commit_lock: if given, the table is read again before the first try, as other dispatchers
        may have committed since ``head`` was read

    Raises :class:`~lakelog_lake.errors.TooManyConflicts`,
    :class:`~lakelog_lake.errors.LayoutChanged` and :class:`~lakelog_lake.errors.Unreachable`.
    """
    if commit_lock is None:
        return _tried(sink, head, store, files, position)
    with commit_lock.taken():
        began = _mark(head)
        with table_errors(sink.name):
            head = sink.head(store)
        if _mark(head) != began:
            discard(files)
            return False
        return _tried(sink, head, store, files, position)


def _tried(
    sink: Sink, head: Head, store: str, files: Sequence[FileFacts], position: Position
) -> bool:
    """Repeat the commit up to the limits of this module; see :func:`commit`."""
    began, refused = _mark(head), 0
    pause = _FIRST_PAUSE_SECONDS
    failure: Exception | None = None
    for tried in range(_TRIES):
        if files and head.form != sink.layout.form:
            _discard_unless_tried(files, tried) or _is_ours(head, store, files, position, began)
            raise LayoutChanged(sink.name)
        try:
            sink.commit(head, store, files, position)
        except DemandsUnmet:
            _discard_unless_tried(files, tried)
            raise
        except Exception as error:  # the table's position shows the outcome
            if raised_by_handler(error):
                raise
            failure = error
            refused += not isinstance(error, Conflict)
        else:
            return True
        with table_errors(sink.name):
            head = sink.head(store)
        if _mark(head) == (position.commit, position.end):
            return True
        if _mark(head) != began:
            return _is_ours(head, store, files, position, began)
        if refused == _TRIES_AFTER_ERRORS and failure is not None:
            raise Unreachable(sink.name, error_text(failure)) from failure
        _log.info("%s: trying again after %r", sink.name, failure)
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
    raise TooManyConflicts(
        f"{sink.name} could not be committed to in {_TRIES} tries; the last error: {failure}"
    ) from failure


def _discard_unless_tried(files: Sequence[FileFacts], tried: int) -> bool:
    """Remove the files of a commit that was never tried; return whether that is so."""
    discard(() if tried else files)
    return not tried


def _is_ours(
    head: Head,
    store: str,
    files: Sequence[FileFacts],
    position: Position,
    began: tuple[int, int] | None,
) -> bool:
    """Whether another commit followed this one; if it was not done, its files are removed."""
    since = None if began is None else began[0]
    known = None if head.history is None else lists(head.history, store, position.commit, since)
    if known is False:
        discard(files)
    return known is True


def _mark(head: Head) -> tuple[int, int] | None:
    """Identify a version by commit and end; positions derived from rows have no commit number."""
    return None if head.position is None else (head.position.commit, head.position.end)
