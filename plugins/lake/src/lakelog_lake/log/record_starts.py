"""Known starts of records in a log, found without reading the bytes between them.

A segment starts with a record. Inside of segments, units of ConsumeQueues have the starts of
records. These files are read directly, without the checks of an open store, which would scan the
part of the log that queues may lack. So units are hints: callers verify a unit by the record at its
offset. A unit is
``offset i64 | size i32 | tags i64``, big-endian (RocketMQ's ``ConsumeQueue``).
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
from numpy.typing import NDArray

import lakelog
from lakelog.errors import CorruptRecord, OffsetOutOfRange
from lakelog.files.filesystem import File, FileSystem, RealFileSystem
from lakelog.format import layout
from lakelog.format.queue_offsets import Queue

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

    queue: Queue
    _folder: Path
    _bases: list[int]
    _lengths: list[int]
    _files: FileSystem
    first: int = 0
    end: int = 0
    _open: dict[int, File] = attrs.field(factory=dict)

    def load(self) -> QueueFiles:
        """Find ``first`` and ``end``: the end is behind the last unit with a size above 0."""
        self.first = self.end = self._bases[0] // UNIT.itemsize if self._bases else 0
        for number in reversed(range(len(self._bases))):
            low = self._bases[number] // UNIT.itemsize
            end = self._end_in(low, low + self._lengths[number] // UNIT.itemsize)
            if end > low:
                self.end = end
                break
        return self

    def _end_in(self, low: int, high: int) -> int:
        def is_behind(unit: int) -> bool:
            raw = self.units(unit, 1)
            return not len(raw) or raw["size"][0] <= 0

        return low + bisect_left(range(low, high), True, key=is_behind)

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

        def is_from(unit: int) -> bool:
            raw = self.units(unit, 1)
            return not len(raw) or int(raw["offset"][0]) >= offset

        return low + bisect_left(range(low, high), True, key=is_from)

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


def _folders(root: Path) -> Iterator[tuple[Path, Queue]]:
    if not root.is_dir():
        return
    for topic in sorted(os.listdir(root)):
        folder = root / topic
        if folder.is_dir():
            for name in sorted(os.listdir(folder)):
                if name.isascii() and name.isdigit():
                    yield folder / name, (topic, int(name))


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
        folder = log_folder(self.store)
        for start in reversed(self.starts):
            with (folder / layout.segment_name(start)).open("rb") as file:
                if any(file.read(layout.BLANK.size)):
                    return start
        return None


def log_folder(store: lakelog.Store) -> Path:
    """The folder of the log's segments."""
    return store.settings.core.commitlog(store.path)


def segment_starts(store: lakelog.Store) -> list[int]:
    """The start offsets of the existing segments."""
    folder = log_folder(store)
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(int(each) for each in names if _NAME.fullmatch(each))
