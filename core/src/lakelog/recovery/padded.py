"""Segments as a recovery reads them: short files are padded with zeros."""

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
        """Offset of the next bytes that may be non-zero."""
        found = self._inner.next_data(offset) if offset < self._inner.end else None
        if found is not None and found < self._inner.end:
            return found
        self._zeros[self.start] = min(offset, self._zeros.get(self.start, offset))
        return None


class PaddedSource:
    """A directory of segments, each padded to full length.

    :ivar zeros: by segment start, the offset from which on it was found to be zero
    """

    def __init__(self, source: FileSource, size_bytes: int) -> None:
        self.zeros: dict[int, int] = {}
        self._source = source
        self._size_bytes = size_bytes

    def known_damage(self) -> Mapping[int, Damage]:
        """Noted damage that cannot be judged better now; the rest is examined anew."""
        return {at: each for at, each in self._source.known_damage().items() if each.unproven}

    def starts(self) -> list[int]:
        """The start offsets of the segments."""
        return self._source.starts()

    def extents(self, start: int) -> Iterator[PaddedExtent]:
        """Yield the segments from the one at ``start`` on; each is open until the next one."""
        for extent in self._source.extents(start):
            yield PaddedExtent(extent, self._size_bytes, self.zeros)
