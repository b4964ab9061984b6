"""Finds the readable and durable end of a log, and the offset up to which queue files are complete.

The search for the end starts at the last record of a ConsumeQueue, so little of the log is read.
The last segment is scanned only after a crash, or if queues are missing or far behind.
"""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from struct import Struct
from typing import Final

from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import ABORT_FILE, BLANK, LOCK_FILE, MAGIC_BLANK, segment_name
from lakelog.log.reading.pieces import Blank, Damage
from lakelog_lake.errors import DurableEndUnknown
from lakelog_lake.log.record_starts import RecordStarts, log_folder

_MOST_RECORDS: Final = 2000
_ZEROS: Final = 64 << 10


def followed_end(marks: RecordStarts, *, is_open: bool) -> int | None:
    """The end of the last whole record; ``None`` if it is uncertain, or too far from any unit.

    :param is_open: whether a process writes the log; then an incomplete record is not an error
    """
    at = marks.last()
    for _ in range(_MOST_RECORDS if at is not None else 0):
        assert at is not None  # for the type checker
        message = marks.message(at)
        if message is not None:
            at += message.size
            continue
        behind = _behind_blank(marks, at)
        if behind is None:
            return at if is_open or _is_end(marks, at) else None
        if behind not in marks.starts:
            return behind
        if _is_end(marks, behind):
            return behind
        at = behind
    return None


def _behind_blank(marks: RecordStarts, at: int) -> int | None:
    """The start of the next segment, if a blank fills the rest of this one."""
    head = _read(marks, at, BLANK.size)
    if len(head) < BLANK.size or BLANK.unpack(head)[1] != MAGIC_BLANK:
        return None
    return at + int(BLANK.unpack(head)[0])


def _is_end(marks: RecordStarts, at: int) -> bool:
    """Whether only zeros follow ``at``, as far as one read shows."""
    return not any(_read(marks, at, _ZEROS))


def _read(marks: RecordStarts, at: int, length: int) -> bytes:
    start = marks.segment_of(at)
    path = log_folder(marks.store) / segment_name(start)
    try:
        file = RealFileSystem().open(path)
    except FileNotFoundError:
        return b""
    try:
        return file.read_at(at - start, length)
    finally:
        file.close()


READABLE: Final = "readable"
"""A read up to this end returns all readable records, durable or not."""
NOT_YET_QUEUED_BYTES: Final = 16 << 20
"""In an open store all units for records this far before the last unit's record are written: units
are written in log order, in runs of 4 MiB.
"""
_FLOCK: Final = Struct("hhqqi4x")
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""
_log = logging.getLogger("lakelog_lake")


def readable_end(marks: RecordStarts) -> int:
    """The end of the last whole record that can be read now."""
    is_clean = not (marks.store.path / ABORT_FILE).exists()
    is_open = not is_clean and is_open_somewhere(marks.store.path)
    end = followed_end(marks, is_open=is_open) if is_clean or is_open else None
    return _searched_end(marks) if end is None else end


def _searched_end(marks: RecordStarts) -> int:
    """The end after a crash: whole records may follow damaged ones, so all bytes are read."""
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


def end_of(marks: RecordStarts, until: str | None) -> int:
    """The end of a read, a physical offset; a later crash must not lose a returned record.

    :param until: ``flushed``, ``readable``, or ``None`` for ``flushed`` if the durable end is known
        and otherwise ``readable``

    Raises :class:`~lakelog_lake.errors.DurableEndUnknown` for ``flushed`` if the durable end is not
    known.
    """
    store, readable = marks.store, readable_end(marks)
    if until == READABLE or not (store.path / ABORT_FILE).exists():
        return readable  # after a clean stop all is durable
    if not store.is_flushed_known:
        if until is None:
            return readable
        raise DurableEndUnknown(store.path)
    flushed = min(store.flushed_offset, readable)
    if flushed < readable:
        _log.warning(
            "%s: %d bytes are not durable yet and are left out; flush or close the store, or give "
            "option until=readable",
            store.path,
            readable - flushed,
        )
    return flushed


def queued_end(marks: RecordStarts, end: int) -> int:
    """The physical offset before which every queued record has its unit in the queue's file.

    After a crash it is 0: a power cut may lose any unit.
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
