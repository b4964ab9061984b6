"""Where a log ends, where it is durable, and up to where the files of its queues can be believed.

The end is found behind the last record that a queue leads to, so that little of the log is read;
only after a crash, and where queues are missing or far behind, the last segment is.
"""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from struct import Struct
from typing import Final

from lakelog.files import RealFileSystem
from lakelog.layout import ABORT_FILE, LOCK_FILE
from lakelog.pieces import Blank, Damage
from lakelog_spark.errors import NotKnown
from lakelog_spark.follow import followed_end
from lakelog_spark.landmarks import Landmarks
from lakelog_spark.options import READABLE

NOT_YET_QUEUED_BYTES: Final = 16 << 20
"""Beside an owner, units this far behind the last one are all there: they come in the log's order,
and the owner dispatches runs of 4 MiB."""
_FLOCK: Final = Struct("hhqqi4x")
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""
_log = logging.getLogger("lakelog_spark")


def readable_end(marks: Landmarks) -> int:
    """Behind the last whole record that can be read now."""
    is_clean = not (marks.store.path / ABORT_FILE).exists()
    is_open = not is_clean and is_open_somewhere(marks.store.path)
    end = followed_end(marks, is_open=is_open) if is_clean or is_open else None
    return _searched_end(marks) if end is None else end


def _searched_end(marks: Landmarks) -> int:
    """After a crash whole records may stand behind damaged ones: all that is there is read."""
    last, written = marks.last(), marks.last_written()
    if last is None or (written is not None and marks.segment_of(last) < written):
        return marks.store.max_offset
    end = last
    for piece in marks.store.scan_pieces(last):
        if isinstance(piece, Blank):
            end = piece.offset + piece.size
        elif not isinstance(piece, Damage):
            end = piece.end_offset
    return end


def end_of(marks: Landmarks, until: str | None) -> int:
    """Where a read stops; what leaves the store must not be taken back by a crash.

    :param until: as :class:`~lakelog_spark.options.ReadOptions` has it

    Raises :class:`~lakelog_spark.errors.NotKnown` for ``flushed`` where that is not known.
    """
    store, readable = marks.store, readable_end(marks)
    if until == READABLE or not (store.path / ABORT_FILE).exists():
        return readable  # a clean stop leaves everything durable
    if not store.is_flushed_known:
        if until is None:
            return readable
        raise NotKnown(store.path)
    flushed = min(store.flushed_offset, readable)
    if flushed < readable:
        _log.warning(
            "%s: %d bytes are not durable yet and are left out; flush or close the store, or give "
            "option until=readable",
            store.path,
            readable - flushed,
        )
    return flushed


def queued_end(marks: Landmarks, end: int) -> int:
    """Every record before it that belongs into a queue has its unit in the queue's file.

    After a crash nothing is sure: a power cut takes what it wants.
    """
    if not (marks.store.path / ABORT_FILE).exists():
        return end
    last = marks.last() if is_open_somewhere(marks.store.path) else None
    return 0 if last is None else min(end, max(0, last - NOT_YET_QUEUED_BYTES))


def is_open_somewhere(path: Path) -> bool:
    """Whether a process of this machine, lakelog's or RocketMQ's, holds the lock of a store."""
    try:
        lock = RealFileSystem().open(path / LOCK_FILE)
    except OSError:
        return False
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        found: int = _FLOCK.unpack(fcntl.fcntl(lock.fileno(), fcntl.F_OFD_GETLK, asked))[0]
        return found != fcntl.F_UNLCK
    except OSError:
        return False
    finally:
        lock.close()
