"""Finds the readable and durable end of a log, and caches what can be cached between passes.

The search for the readable end starts at the last record of a ConsumeQueue, so little of the log is
read. The last segment is scanned only after a crash, or if queues are missing or far behind.

For a closed store the durable end takes a scan of its last segment, which costs as much as landing
some hundred MiB. The result stays durable as long as no segment file is replaced, extended or
written to. It stays the end of the log only as long as the store also stays closed: an open creates
``abort``, which changes the directory's modification time, even after ``abort`` is removed.

A store stays open between passes as long as its log can only grow. A log only grows while one
process has the store open. An unchanged ``abort`` file shows this: each open for writing creates
the file anew, and a log is recovered, cut or replaced only before that. A store that no process has
open is opened again for each pass, as users may have changed its files. Callers may read only the
log through the kept reader: queues built in memory would grow without bound.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, TypeAlias

import attrs

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog.format import layout
from lakelog.format.record_batch import Blank, Damage
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
    head = _read(marks, at, layout.BLANK.size)
    if len(head) < layout.BLANK.size or layout.BLANK.unpack(head)[1] != layout.MAGIC_BLANK:
        return None
    return at + int(layout.BLANK.unpack(head)[0])


def _is_end(marks: RecordStarts, at: int) -> bool:
    """Whether only zeros follow ``at``, as far as one read shows."""
    return not any(_read(marks, at, _ZEROS))


def _read(marks: RecordStarts, at: int, length: int) -> bytes:
    start = marks.segment_of(at)
    path = log_folder(marks.store) / layout.segment_name(start)
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
    is_clean = not (marks.store.path / layout.ABORT_FILE).exists()
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
    if until == READABLE or not (store.path / layout.ABORT_FILE).exists():
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
    if not (marks.store.path / layout.ABORT_FILE).exists():
        return end
    last = marks.last() if is_open_somewhere(marks.store.path) else None
    return 0 if last is None else min(end, max(0, last - NOT_YET_QUEUED_BYTES))


def is_open_somewhere(path: Path) -> bool:
    """Whether a process of this machine, lakelog's or RocketMQ's, holds the lock of a store."""
    try:
        lock = RealFileSystem().open(path / layout.LOCK_FILE)
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


_State: TypeAlias = frozenset[tuple[str, int, int, int]]
_SETTLED_NS: Final = 2_000_000_000
"""File times may be so coarse that a second change right after the first does not show."""


@attrs.define
class DurableEnd:
    """Caches the durable end of one log."""

    _end: int = 0
    _state: _State | None = None
    _closed: _State | None = None

    def behind(self, store: lakelog.Store, start: int) -> int | None:
        """The durable end; ``None`` if it is not known.

        For an open store, a cached end is returned only if it is behind ``start``: it is still
        durable, but newer records may have become durable since.
        """
        closed = _closed(store.path)
        state = _state(store.path / layout.COMMITLOG_DIR)
        if state == self._state and (start < self._end or self._is_still(closed)):
            return self._end
        end = store.flushed_offset
        if not end and not store.is_flushed_known:
            return None
        self._end, self._state = end, state  # the states were taken before the answer
        self._closed = closed
        return end

    def is_still(self, path: Path) -> bool:
        """Whether the store is closed, and its files have not changed since the last call."""
        return self._is_still(_closed(path)) and _state(path / layout.COMMITLOG_DIR) == self._state

    def _is_still(self, closed: _State | None) -> bool:
        return closed is not None and closed == self._closed


def _closed(folder: Path) -> _State | None:
    """The state of a closed store's folders; ``None`` for an open or just closed store.

    A store after a crash does not count as closed.
    """
    if (folder / layout.ABORT_FILE).exists():
        return None
    found = frozenset(_stated((folder, folder / layout.COMMITLOG_DIR)))
    before = time.time_ns() - _SETTLED_NS
    return found if all(changed < before for *_, changed in found) else None


def _state(folder: Path) -> _State:
    """Names, sizes and times of the log's files."""
    return frozenset(_stated(folder.iterdir() if folder.is_dir() else ()))


def _stated(paths: Iterable[Path]) -> Iterator[tuple[str, int, int, int]]:
    for path in paths:
        try:
            known = path.stat()
        except FileNotFoundError:  # deleted meanwhile; the next call returns another state
            continue
        yield path.name, known.st_ino, known.st_size, known.st_mtime_ns


_Marks: TypeAlias = tuple[tuple[int, ...] | None, ...]
_FOLDERS: Final = (".", layout.COMMITLOG_DIR, layout.OWN_DIR)
_FILES: Final = (
    layout.ABORT_FILE,
    f"{layout.OWN_DIR}/{layout.STORE_FILE}",
    f"{layout.OWN_DIR}/{layout.SETTINGS_FILE}",
    f"{layout.OWN_DIR}/damage.json",
)


@attrs.define
class CachedStore:
    """Opens the store on demand."""

    path: Path
    _store: lakelog.Store | None = None
    _marks: _Marks = ()

    def now(self) -> lakelog.Store:
        """The present store, open for reading."""
        store = self.kept
        if store is None:
            self.close()
            marks = _marks(self.path)  # taken before the store is opened
            store = self._store = lakelog.open(self.path, mode="read")
            self._marks = marks
        return store

    @property
    def kept(self) -> lakelog.Store | None:
        """The open store, unless it has to be opened again."""
        is_same = self._marks == _marks(self.path) and is_open_somewhere(self.path)
        return self._store if is_same else None

    def close(self) -> None:
        """Close the store, so that the next use opens it again."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _marks(path: Path) -> _Marks:
    """File attributes that change if the store is replaced or gets another owner."""
    place = str(path)  # plain strings: this runs twice a second when idle
    folders = (_stat(f"{place}/{name}", with_time=False) for name in _FOLDERS)
    return (*folders, *(_stat(f"{place}/{name}", with_time=True) for name in _FILES))


def _stat(path: str, *, with_time: bool) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    which = (found.st_dev, found.st_ino)
    return (*which, found.st_size, found.st_mtime_ns) if with_time else which
