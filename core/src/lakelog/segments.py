"""The log as files of one size: find, view, roll, truncate, delete (RocketMQ's MappedFileQueue).

Segments follow one another without a gap; deletion goes from the front, truncation from the back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from lakelog.errors import OffsetOutOfRange
from lakelog.files import File
from lakelog.interfaces import SegmentWriter, Writer
from lakelog.preallocate import Preallocator, SegmentMaker


def _ignore(_start_offset: int) -> None:
    """Nobody listens."""


class _Viewable(Protocol):
    """A segment that can be read."""

    def view(self, position: int, length: int) -> memoryview: ...

    def close(self) -> None: ...


class _SealedSegment:
    """A segment of an earlier run, mapped for reading when it is first read."""

    def __init__(self, maker: SegmentMaker, start_offset: int) -> None:
        file = maker.files.open(maker.path(start_offset))
        try:
            self._map = memoryview(file.map(maker.size_bytes, writable=False))
        finally:
            file.close()

    def view(self, position: int, length: int) -> memoryview:
        return self._map[position : position + length]

    def close(self) -> None:
        """The map goes when its last view goes."""


class Segments:
    """The segments of one log, the last of them open for writing.

    :ivar size_bytes: length of each
    :ivar first_offset: where the first one starts
    :ivar active_offset: where the one that is being written starts
    :ivar on_roll: told where each further segment starts
    """

    def __init__(
        self,
        maker: SegmentMaker,
        preallocator: Preallocator,
        writer: Writer,
        first_offset: int,
        active_offset: int,
        position: int,
    ) -> None:
        self.size_bytes = maker.size_bytes
        self.first_offset = first_offset
        self.active_offset = active_offset
        self._maker = maker
        self._preallocator = preallocator
        self._writer = writer
        file = preallocator.take(active_offset) if not position else maker.adopt(active_offset)
        self.active: SegmentWriter = self._opened(file, position)
        self._open: dict[int, _Viewable] = {active_offset: self.active}
        self._tail = (active_offset, self.active)
        self._unsynced: list[SegmentWriter] = [self.active]
        self.on_roll: Callable[[int], None] = _ignore

    def _opened(self, file: File, position: int) -> SegmentWriter:
        try:
            return self._writer.open(file, self.size_bytes, position)
        except BaseException:  # Ctrl-C too: nobody else could close it
            file.close()
            raise

    def starts(self) -> Sequence[int]:
        """Where each segment starts, in order."""
        return range(self.first_offset, self.active_offset + 1, self.size_bytes)

    def view(self, offset: int, length: int) -> memoryview:
        """At most ``length`` bytes from ``offset``, not beyond the end of its segment; no copy."""
        if not self.first_offset <= offset < self.active_offset + self.size_bytes:
            raise OffsetOutOfRange(
                f"offset {offset} is in no segment; there are {self.first_offset} to "
                f"{self.active_offset + self.size_bytes}",
                offset=offset,
            )
        start = offset - offset % self.size_bytes
        position = offset - start
        return self._segment(start).view(position, min(length, self.size_bytes - position))

    def _segment(self, start: int) -> _Viewable:
        segment = self._open.get(start)
        if segment is None:
            segment = self._open[start] = _SealedSegment(self._maker, start)
        return segment

    def prepare_next(self) -> None:
        """See to it that the next segment is made before it is needed."""
        self._preallocator.request(self.active_offset + self.size_bytes)

    def prepare_roll(self) -> SegmentWriter:
        """The writer of the next segment; raises ``OSError`` where none can be made."""
        next_offset = self.active_offset + self.size_bytes
        return self._opened(self._preallocator.take(next_offset), 0)

    def roll(self, writer: SegmentWriter) -> None:
        """Go on in the segment that ``prepare_roll`` gave."""
        self.active_offset += self.size_bytes
        self._open[self.active_offset] = writer
        self._unsynced.append(writer)
        self.active = writer
        self._tail = (self.active_offset, writer)
        self.on_roll(self.active_offset)

    def commit(self) -> int:
        """Hand staged bytes to the page cache; the end of what others see."""
        offset, active = self._tail  # at once: another thread may roll
        for sealed in self._unsynced[:-1]:
            sealed.commit()
        return offset + active.commit()

    def sync(self) -> None:
        """Make durable all that was committed before the call; for one caller at a time."""
        writers = list(self._unsynced)
        for writer in writers:
            writer.sync()
        for sealed in writers[:-1]:
            with suppress(ValueError):  # one that was deleted meanwhile
                self._unsynced.remove(sealed)

    def delete_first(self) -> int:
        """Delete the first segment; the new first offset. The active one is never deleted."""
        if self.first_offset == self.active_offset:
            raise ValueError("the active segment cannot be deleted")
        start = self.first_offset
        self.first_offset += self.size_bytes
        self._drop(start)
        self._maker.remove(start)
        return self.first_offset

    def _drop(self, start: int) -> None:
        segment = self._open.pop(start, None)
        if segment in self._unsynced:
            self._unsynced.remove(segment)
        if segment is not None:
            segment.close()

    def close(self) -> None:
        """Let go of all files, and of segments that were never used; once is enough."""
        while self._open:
            _, segment = self._open.popitem()
            with suppress(OSError):
                segment.close()
        self._preallocator.close()
