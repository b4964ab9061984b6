"""Reads the files of one queue for a check, which continues past any damage in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lakelog.files.filesystem import File, FileSystem, unreadable
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format.layout import segment_name
from lakelog_interfaces.strategies.verifying import Problem
from lakelog_queues.files.openfiles import OpenFiles

RawUnits = NDArray[Any]
_READ_BYTES: Final = 1 << 20

WRONG_LENGTH: Final = "the file has a wrong length"
WRONG_NAME: Final = "no file can start there, and its queue is not compared"
GAP: Final = "files are missing before this one"


class CheckedFiles:
    """Units by their number, in files of equal size; changes nothing.

    :ivar first: number of the first unit of the first file
    :ivar end: number after the last nonzero unit, as of the creation or the last :meth:`look`
    :ivar fits: whether the names of all files are multiples of the file size
    """

    def __init__(
        self, files: FileSystem, opened: OpenFiles, directory: Path, unit: np.dtype[Any], size: int
    ) -> None:
        self.directory = directory
        self._files = files
        self._opened = opened
        self._unit = unit
        self._size = size
        self._in_file = size // unit.itemsize
        self.look()

    def look(self) -> None:
        """List the files again, and find the end again."""
        listing = self._files.list(self.directory)
        self._there = segment_files(self.directory, listing)
        self.fits = all(not each.start_offset % self._size for each in self._there)
        starts = [each.start_offset for each in self._there]
        self.first = starts[0] // self._unit.itemsize if starts else 0
        self.end = self._find_end() if self.fits else self.first

    def problems(self) -> Iterator[Problem]:
        """Problems with names and lengths; an empty file is just being created, so it is none."""
        before = None
        for each in self._there:
            if each.length not in (0, self._size):
                yield Problem(
                    each.path, each.length, WRONG_LENGTH, f"{self._size} bytes", str(each.length)
                )
            if each.start_offset % self._size:
                expected = f"a multiple of {self._size}"
                yield Problem(each.path, 0, WRONG_NAME, expected, str(each.start_offset))
            elif before is not None and each.start_offset != before + self._size:
                expected = segment_name(before + self._size)
                yield Problem(each.path, 0, GAP, f"one named {expected}")
            before = each.start_offset

    def read(self, first: int, end: int) -> RawUnits:
        """Units ``first`` to ``end``, up to :attr:`end` at most; zeros in place of missing ones."""
        units = np.zeros(max(0, min(end, self.end) - first), self._unit)
        at = 0
        while at < len(units):
            within = (first + at) % self._in_file
            count = min(len(units) - at, self._in_file - within)
            data = self._bytes(first + at - within, within, count)
            some = np.frombuffer(data, self._unit, len(data) // self._unit.itemsize)
            units[at : at + len(some)] = some
            at += count
        return units

    def place(self, number: int) -> tuple[Path, int]:
        """The file of a unit, and the unit's first byte in it."""
        within = number % self._in_file
        path = self.directory / segment_name((number - within) * self._unit.itemsize)
        return path, within * self._unit.itemsize

    def _bytes(self, base: int, within: int, count: int) -> bytes:
        path = self.directory / segment_name(base * self._unit.itemsize)
        size = self._unit.itemsize
        return self._opened.read(path, within * size, count * size)

    def _find_end(self) -> int:
        for each in reversed(self._there):
            last = self._last_byte(each)
            if last is not None:
                return (each.start_offset + last) // self._unit.itemsize + 1
        return self.first

    def _last_byte(self, found: SegmentFile) -> int | None:
        """The position of the last nonzero byte of a file; ``None`` if there is none."""
        try:
            with self._opened.use(found.path) as file:
                return _last_byte(file, self._size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(found.path, error) from error


def _last_byte(file: File, size: int) -> int | None:
    last = None
    at = file.next_data(0)
    while at is not None and at < size:
        data = file.read_at(at, min(_READ_BYTES, size - at))
        if not data:
            break
        if stripped := data.rstrip(b"\x00"):
            last = at + len(stripped) - 1
        at = file.next_data(at + len(data))
    return last
