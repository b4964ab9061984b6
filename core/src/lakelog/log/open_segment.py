"""One segment that a process has open: mapped for reading, or open for writing."""

from __future__ import annotations

import weakref
from itertools import count
from typing import Final, Protocol, TypeAlias

import attrs

from lakelog.errors import OffsetOutOfRange
from lakelog.files.preallocation import Blocks, SegmentMaker
from lakelog.interfaces import Extendable, Mapped, SegmentWriter

Window: TypeAlias = tuple[int, int, int, int, memoryview, int, int, int]
"""Where compiled code may write: number, offsets of the segment, of its end and of the end of what
is reserved, a writable map, the offset of its first byte, a descriptor of the file, and the length
in bytes from which records are written to that. No two windows of a process have the same number.
"""
_NUMBERS: Final = count(1)


class Viewable(Protocol):
    """A segment that can be read."""

    def view(self, position: int, length: int) -> memoryview:
        """Bytes of it; no copy."""

    def close(self) -> None:
        """Let go of it."""


class SealedSegment:
    """A segment that is not written any more, mapped for reading when it is read."""

    def __init__(self, maker: SegmentMaker, start_offset: int) -> None:
        file = maker.files.open(maker.path(start_offset))
        try:
            mapped = file.map(maker.size_bytes, writable=False)
        finally:
            file.close()
        self.memory = memoryview(mapped)
        self.alive = weakref.ref(mapped)

    def view(self, position: int, length: int) -> memoryview:
        """Memory of the file."""
        return self.memory[position : position + length]

    def close(self) -> None:
        """The map goes when its last view goes."""


@attrs.define(eq=False)
class Opened:
    """A segment that is open for writing.

    :ivar start: where it starts
    :ivar end: position up to which its writer was given blocks
    """

    start: int
    writer: SegmentWriter
    blocks: Blocks
    end: int = 0

    def window(self, size_bytes: int, reserved_offset: int) -> Window | None:
        """What of a segment of ``size_bytes`` may be written to, up to ``reserved_offset``."""
        if not (self.end and isinstance(self.writer, Mapped)):
            return None
        memory, position, descriptor, most_bytes = self.writer.writable_map()
        start, number = self.start, next(_NUMBERS)
        place = start, start + size_bytes, reserved_offset
        return number, *place, memory, start + position, descriptor, most_bytes

    def extend(self, position: int) -> None:
        """Give the writer, whose next write is at ``position``, the blocks that there are."""
        if isinstance(self.writer, Extendable):
            self.writer.extend(position, self.blocks.end)
        self.end = self.blocks.end


@attrs.frozen(eq=False)
class Unsynced:
    """A segment of which not everything is durable; ``start`` is its first offset."""

    start: int
    writer: SegmentWriter

    def commit(self) -> int:
        """Where in the log its committed bytes end."""
        return self.start + self.writer.commit()


def deleted(offset: int, minimum: int) -> OffsetOutOfRange:
    """The error for who asks for what retention has deleted."""
    return OffsetOutOfRange(
        f"offset {offset} was deleted by retention; the log now begins at {minimum}: go on from "
        "there, and take what lies between for lost",
        offset=offset,
    )
