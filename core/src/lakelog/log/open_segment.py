"""One segment open in a process: mapped for reading, or open for writing."""

from __future__ import annotations

import weakref
from contextlib import closing
from itertools import count
from typing import Final, Protocol, TypeAlias

import attrs

from lakelog.files.preallocation import Blocks, SegmentMaker
from lakelog_interfaces.errors import OffsetOutOfRange
from lakelog_interfaces.strategies import Extendable, Mapped, SegmentWriter

Window: TypeAlias = tuple[int, int, int, int, memoryview, int, int, int]
"""The memory that compiled code may write to: number; offsets of the segment, its end, and its
reserved end; a writable map; offset of the map's first byte; file descriptor; length in bytes from
which records are written through the descriptor. Numbers are unique in a process.
"""
_NUMBERS: Final = count(1)


class Viewable(Protocol):
    """A segment that can be read."""

    def view(self, position: int, length: int) -> memoryview:
        """A view of its bytes, without a copy."""

    def close(self) -> None:
        """Close it."""


class SealedSegment:
    """A segment that is no longer written, mapped at the first read."""

    def __init__(self, maker: SegmentMaker, start_offset: int) -> None:
        with closing(maker.files.open(maker.path(start_offset))) as file:
            mapped = file.map(maker.size_bytes, writable=False)
        self.memory = memoryview(mapped)
        self.alive = weakref.ref(mapped)

    def view(self, position: int, length: int) -> memoryview:
        """A view of the mapped file."""
        return self.memory[position : position + length]

    def close(self) -> None:
        """Drop the map, which ends with its last view."""


@attrs.define(eq=False)
class OpenSegment:
    """A segment open for writing.

    :ivar start: offset of its first byte
    :ivar end: position up to which its writer may write: the end of the allocated blocks
    """

    start: int
    writer: SegmentWriter
    blocks: Blocks
    end: int = 0

    def window(self, size_bytes: int, reserved_offset: int) -> Window | None:
        """The writable window of a segment of ``size_bytes``, up to ``reserved_offset``."""
        if not (self.end and isinstance(self.writer, Mapped)):
            return None
        memory, position, descriptor, most_bytes = self.writer.writable_map()
        start, number = self.start, next(_NUMBERS)
        place = start, start + size_bytes, reserved_offset
        return number, *place, memory, start + position, descriptor, most_bytes

    def commit(self) -> int:
        """Commit its bytes; return the offset of their end."""
        return self.start + self.writer.commit()

    def extend(self, position: int) -> None:
        """Give the writer the allocated blocks; its next write is at ``position``."""
        if isinstance(self.writer, Extendable):
            self.writer.extend(position, self.blocks.end)
        self.end = self.blocks.end


def deleted(offset: int, minimum: int) -> OffsetOutOfRange:
    """The error for a request of deleted bytes."""
    return OffsetOutOfRange(
        f"offset {offset} was deleted by retention; the log now begins at {minimum}: continue "
        "there; the records in between are lost",
        offset=offset,
    )
