"""Finds bytes that do not belong to the log: behind its end, and behind the end of a segment.

A recovery reads short files as if zeros followed, and then corrects the lengths of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import attrs

from lakelog.files.filesystem import FileSystem, last_nonzero
from lakelog.files.segment_files import SegmentFile
from lakelog.format.record_batch import Damage
from lakelog.log.sources import FileExtent, FileSource

BEHIND: Final = "behind the end of the log"
SURPLUS: Final = "behind the end of its segment"


@attrs.frozen
class Tail:
    """Bytes to move to quarantine.

    :ivar path: the segment file
    :ivar position: where they begin in the file
    :ivar length: number of bytes up to the last non-zero one
    :ivar offset: where they begin in the log
    :ivar reason: why they are not part of the log
    """

    path: Path
    position: int
    length: int
    offset: int
    reason: str

    @property
    def end_offset(self) -> int:
        """Offset behind the last byte."""
        return self.offset + self.length


def tails(
    files: FileSystem,
    segments: Sequence[SegmentFile],
    size_bytes: int,
    end_offset: int,
    refused: Sequence[int],
    zeros: Mapping[int, int],
) -> Iterator[Tail]:
    """Yield the tails, in log order.

    :param refused: offsets of whole records that do not belong to the log
    :param zeros: by segment start, the offset from which on it is known to be zero
    """
    for each in segments:
        begin = max(end_offset - each.start_offset, 0)
        known = zeros.get(each.start_offset, each.start_offset + size_bytes) - each.start_offset
        stop = min(each.length, size_bytes, known)
        if begin < stop:
            unproven = sum(begin <= at - each.start_offset < stop for at in refused)
            reason = f"{BEHIND}; {unproven} whole records in it are not proved" * bool(unproven)
            yield from _tail(files, each, begin, stop, reason or BEHIND)
        if each.length > size_bytes:
            yield from _tail(files, each, size_bytes, each.length, SURPLUS)


def _tail(
    files: FileSystem, segment: SegmentFile, begin: int, stop: int, reason: str
) -> Iterator[Tail]:
    with closing(files.open(segment.path)) as file:
        last = last_nonzero(file.next_data, file.read_at, begin, stop)
    if last is not None:
        yield Tail(segment.path, begin, last + 1 - begin, segment.start_offset + begin, reason)


@attrs.frozen
class Length:
    """A file of ``found`` bytes in place of ``expected``."""

    path: Path
    start_offset: int
    found: int
    expected: int

    def __str__(self) -> str:
        """A description of the correction."""
        done = "extended by zeros" if self.found < self.expected else "cut"
        return f"{self.path}: {self.found} bytes long, {done} to {self.expected}"


def wrong_lengths(segments: Sequence[SegmentFile], size_bytes: int) -> Iterator[Length]:
    """Yield the files that do not have the length of a segment."""
    for each in segments:
        if each.length != size_bytes:
            yield Length(each.path, each.start_offset, each.length, size_bytes)


class PaddedExtent:
    """A segment of full length; zeros replace the bytes that its file lacks."""

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
        """The noted damage with unproved records; all other damage is examined again."""
        return {at: each for at, each in self._source.known_damage().items() if each.unproven}

    def starts(self) -> list[int]:
        """The start offsets of the segments."""
        return self._source.starts()

    def extents(self, start: int) -> Iterator[PaddedExtent]:
        """Yield the segments from the one at ``start`` on; each is open until the next one."""
        for extent in self._source.extents(start):
            yield PaddedExtent(extent, self._size_bytes, self.zeros)
