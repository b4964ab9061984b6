"""One segment that a process has open: mapped for reading, or open for writing."""

from __future__ import annotations

import weakref
from typing import Protocol

import attrs

from lakelog.interfaces import Extendable, SegmentWriter
from lakelog.preallocate import Blocks, SegmentMaker


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
        self._map = memoryview(mapped)
        self.alive = weakref.ref(mapped)

    def view(self, position: int, length: int) -> memoryview:
        """Memory of the file."""
        return self._map[position : position + length]

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
