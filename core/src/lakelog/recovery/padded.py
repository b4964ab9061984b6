"""Segments as a recovery reads them: what is missing at the end of a file is zeros."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from lakelog.log.reading.pieces import Damage
from lakelog.log.reading.source import FileExtent, FileSource


class PaddedExtent:
    """A segment of full length, whatever the length of its file."""

    def __init__(self, inner: FileExtent, size_bytes: int, zeros: dict[int, int]) -> None:
        self.start = inner.start
        self.end = inner.start + size_bytes
        self._inner = inner
        self._zeros = zeros

    @property
    def path(self) -> Path:
        """The file."""
        return self._inner.path

    def read(self, offset: int, length: int) -> memoryview:
        """Read at most to the end of the segment."""
        length = min(length, self.end - offset)
        if offset + length <= self._inner.end:
            return self._inner.read(offset, length)
        left = max(0, self._inner.end - offset)
        there = bytes(self._inner.read(offset, left)) if left else b""
        return memoryview(there.ljust(length, b"\x00"))

    def next_data(self, offset: int) -> int | None:
        """Where the next bytes stand that may be other than zero."""
        found = self._inner.next_data(offset) if offset < self._inner.end else None
        if found is not None and found < self._inner.end:
            return found
        self._zeros[self.start] = min(offset, self._zeros.get(self.start, offset))
        return None


class PaddedSource:
    """A directory of segments, each of which has its full length.

    :ivar zeros: by where a segment starts, from which offset on it was found to be zero
    """

    def __init__(self, source: FileSource, size_bytes: int) -> None:
        self.zeros: dict[int, int] = {}
        self._source = source
        self._size_bytes = size_bytes

    def known_damage(self) -> Mapping[int, Damage]:
        """What was judged once, and cannot be judged better; the rest is found out anew."""
        return {at: each for at, each in self._source.known_damage().items() if each.unproven}

    def starts(self) -> list[int]:
        """Where the segments start."""
        return self._source.starts()

    def extents(self, start: int) -> Iterator[PaddedExtent]:
        """Each segment from the one that holds ``start``, open for as long as it is looked at."""
        for extent in self._source.extents(start):
            yield PaddedExtent(extent, self._size_bytes, self.zeros)
