"""Reads ConsumeQueue files directly, to find starts of records without reading the log.

The units are hints: they are read without the checks of an open store, which would scan the part of
the log that queues may lack. Callers verify a unit by the record at its offset. A unit is
``offset i64 | size i32 | tags i64``, big-endian (RocketMQ's ``ConsumeQueue``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.files.filesystem import File, FileSystem, RealFileSystem
from lakelog.format.layout import BATCHCONSUMEQUEUE_DIR, CONSUMEQUEUE_DIR
from lakelog.format.queue_offsets import Queue

UNIT: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
_FILLER_SIZE: Final = 0x7FFFFFFF
_NAME_DIGITS: Final = 20

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
        while low < high:
            middle = (low + high) // 2
            raw = self.units(middle, 1)
            if len(raw) and raw["size"][0] > 0:
                low = middle + 1
            else:
                high = middle
        return low

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
        while low < high:
            middle = (low + high) // 2
            raw = self.units(middle, 1)
            if len(raw) and int(raw["offset"][0]) < offset:
                low = middle + 1
            else:
                high = middle
        return low

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
        for folder, queue in _folders(path / CONSUMEQUEUE_DIR):
            listing = [(int(a), b) for a, b in seam.list(folder) if _is_name(a)]
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
    root = path / BATCHCONSUMEQUEUE_DIR
    return frozenset(os.listdir(root)) if root.is_dir() else frozenset()


def _is_name(name: str) -> bool:
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()
