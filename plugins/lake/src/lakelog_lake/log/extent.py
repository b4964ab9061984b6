"""Known starts of records in a log, and its readable and durable end, found at little cost.

A segment starts with a record. Inside of segments, units of ConsumeQueues have the starts of
records. These files are read directly, without the checks of an open store, which would scan the
part of the log that queues may lack. So units are hints: callers verify a unit by the record at its
offset. A unit is ``offset i64 | size i32 | tags i64``, big-endian (RocketMQ's ``ConsumeQueue``).

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
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from struct import Struct
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

import lakelog
from lakelog.errors import CorruptRecord, OffsetOutOfRange
from lakelog.files.filesystem import File, FileSystem, RealFileSystem, folders_in, read_range
from lakelog.format import layout, queue_offsets, record_batch
from lakelog_lake.errors import DurableEndUnknown

UNIT: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
_FILLER_SIZE: Final = 0x7FFFFFFF
_NAME_DIGITS: Final = 20
_NAME: Final = re.compile(rf"[0-9]{{{_NAME_DIGITS}}}")
Raw = NDArray[Any]


@attrs.define(eq=False)
class QueueFiles:
    """The files of one queue; units are numbered by queue offset.

    :ivar first: the first unit in the files
    :ivar end: the number behind the last written unit
    """

    queue: queue_offsets.Queue
    _folder: Path
    _bases: list[int]
    _lengths: list[int]
    _files: FileSystem
    first: int = 0
    end: int = 0
    _open: dict[int, File] = attrs.field(factory=dict)

    def load(self) -> None:
        """Find ``first`` and ``end``: the end is behind the last unit with a size above 0."""
        self.first = self.end = self._bases[0] // UNIT.itemsize if self._bases else 0
        for number in reversed(range(len(self._bases))):
            low = self._bases[number] // UNIT.itemsize
            high = low + self._lengths[number] // UNIT.itemsize
            end = self._search(low, high, lambda unit: unit["size"] <= 0)
            if end > low:
                self.end = end
                break

    def _search(self, low: int, high: int, is_found: Callable[[Any], bool]) -> int:
        """The first unit from ``low`` on that is found, or missing; all behind it must be, too."""

        def found(number: int) -> bool:
            raw = self.units(number, 1)
            return not len(raw) or bool(is_found(raw[0]))

        return low + bisect_left(range(low, high), True, key=found)

    def units(self, first: int, count: int) -> Raw:
        """Return at most ``count`` units from ``first`` on, which may span files."""
        parts = []
        at, stop = first * UNIT.itemsize, (first + count) * UNIT.itemsize
        for number, (base, length) in enumerate(zip(self._bases, self._lengths, strict=True)):
            begin, end = max(at, base), min(stop, base + length - length % UNIT.itemsize)
            if begin < end:
                data = self._file(number).read_at(begin - base, end - begin)
                parts.append(np.frombuffer(data[: len(data) - len(data) % UNIT.itemsize], UNIT))
        return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, UNIT), *parts])

    def _file(self, number: int) -> File:
        if number not in self._open:
            self.close()  # most steps of a search use one file
            path = self._folder / f"{self._bases[number]:0{_NAME_DIGITS}d}"
            self._open[number] = self._files.open(path)
        return self._open[number]

    def first_from(self, offset: int, low: int | None = None, high: int | None = None) -> int:
        """The first unit of a record that starts at or behind a physical offset, else the end."""
        low = self.first if low is None else low
        high = self.end if high is None else high
        return self._search(low, high, lambda unit: unit["offset"] >= offset)

    def place(self, unit: int) -> tuple[int, int] | None:
        """Physical offset and size in bytes of a unit's record; ``None`` for a filler."""
        raw = self.units(unit, 1) if self.first <= unit < self.end else None
        if raw is None or not len(raw) or not real(raw)[0]:
            return None
        return int(raw["offset"][0]), int(raw["size"][0])

    def close(self) -> None:
        """Close the open file."""
        while self._open:
            self._open.popitem()[1].close()


def real(raw: Raw) -> NDArray[np.bool_]:
    """Whether each unit has a record; the others are fillers, or were never written."""
    found: NDArray[np.bool_] = (raw["size"] > 0) & ~(
        (raw["size"] == _FILLER_SIZE) & (raw["offset"] == 0)
    )
    return found


@contextmanager
def queue_files(path: Path, files: FileSystem | None = None) -> Iterator[list[QueueFiles]]:
    """The queues of the store directory ``path`` that have written units."""
    seam = files or RealFileSystem()
    opened: list[QueueFiles] = []
    try:
        for folder, queue in _folders(path / layout.CONSUMEQUEUE_DIR):
            listing = [(int(a), b) for a, b in seam.list(folder) if _NAME.fullmatch(a)]
            bases, lengths = [a for a, _ in listing], [b for _, b in listing]
            found = QueueFiles(queue, folder, bases, lengths, seam)
            opened.append(found)
            found.load()
            found.close()
        yield [each for each in opened if each.end > each.first]
    finally:
        for each in opened:
            each.close()


def _folders(root: Path) -> Iterator[tuple[Path, queue_offsets.Queue]]:
    for topic in folders_in(root):
        for folder in folders_in(topic):
            if folder.name.isascii() and folder.name.isdigit():
                yield folder, (topic.name, int(folder.name))


def topics_of_batches(path: Path) -> frozenset[str]:
    """Topics with batch consume queues, whose units have another layout."""
    root = path / layout.BATCHCONSUMEQUEUE_DIR
    return frozenset(os.listdir(root)) if root.is_dir() else frozenset()


FEW: Final = 4
MANY: Final = 64
"""Most queues, longest first, that are searched for a cut."""


@attrs.define(eq=False)
class RecordStarts:
    """The known record starts of one log; offsets are physical offsets in bytes.

    :ivar queues: all queues with units
    :ivar starts: the start offset of each segment
    """

    store: lakelog.Store
    queues: Sequence[QueueFiles]
    starts: Sequence[int]

    @classmethod
    @contextmanager
    def of(cls, store: lakelog.Store, files: FileSystem | None = None) -> Iterator[RecordStarts]:
        """Open the queue files of a store."""
        with queue_files(store.path, files) as queues:
            yield cls(store, queues, segment_starts(store))

    @cached_property
    def longest(self) -> list[QueueFiles]:
        """All queues, those with most units first."""
        return sorted(self.queues, key=lambda each: each.first - each.end)

    def segment_of(self, offset: int) -> int:
        """The start of the segment with ``offset``, or of the last one before it."""
        at = bisect_right(self.starts, offset)
        return self.starts[at - 1] if at else (self.starts[0] if self.starts else 0)

    def message(self, offset: int) -> lakelog.StoredMessage | None:
        """The record at ``offset``, or ``None`` if there is no whole one."""
        try:
            return self.store.look_up(offset)
        except (CorruptRecord, OffsetOutOfRange):
            return None

    def behind(self, target: int, limit: int, asked: int = FEW) -> int | None:
        """The first known record start from ``target`` on and before ``limit``, or ``None``.

        :param asked: number of queues to search, longest first
        """
        found = set()
        for queue in self.longest[:asked]:
            place = queue.place(queue.first_from(target))
            if place is not None and target <= place[0] < limit:
                found.add(place[0])
        return next((each for each in sorted(found) if self.message(each) is not None), None)

    def before(self, target: int, minimum: int) -> int:
        """The last known record start up to ``target``; ``minimum`` without one."""
        found = set()
        for queue in self.longest[:MANY]:
            place = queue.place(queue.first_from(target + 1) - 1)
            if place is not None and minimum < place[0] <= target:
                found.add(place[0])
        proved = (each for each in sorted(found, reverse=True) if self.message(each) is not None)
        return max(minimum, self.segment_of(target), next(proved, minimum))

    def last(self) -> int | None:
        """The start of the last record with a unit; ``None`` without one."""
        places = (each.place(each.end - 1) for each in self.queues)
        found = sorted({place[0] for place in places if place is not None}, reverse=True)
        return next((each for each in found[:MANY] if self.message(each) is not None), None)

    def last_written(self) -> int | None:
        """The start of the last segment with any data; ``None`` without one."""
        written = (
            each for each in reversed(self.starts) if any(_read(self, each, layout.BLANK.size))
        )
        return next(written, None)


def segment_starts(store: lakelog.Store) -> list[int]:
    """The start offset of each segment, ascending."""
    folder = log_folder(store)
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(int(each) for each in names if _NAME.fullmatch(each))


def log_folder(store: lakelog.Store) -> Path:
    """The folder of the log's segments."""
    return store.settings.core.commitlog(store.path)


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
    return read_range(RealFileSystem(), path, at - start, length) or b""


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
        if not isinstance(piece, record_batch.Damage):
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
