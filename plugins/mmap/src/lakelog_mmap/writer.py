"""The writer ``mmap``: every write is a copy into a shared map of the segment.

The store has allocated the segment, so that a store into the map needs no space on the disk and
cannot end in SIGBUS. Syncs go by ``fdatasync``: ``mmap.flush`` would hold the interpreter lock.
"""

from __future__ import annotations

from contextlib import suppress

from lakelog.files import File
from lakelog.interfaces import Context, WriterTraits
from lakelog.message import Body
from lakelog_mmap import memory
from lakelog_mmap.settings import MmapSettings


class MmapSegmentWriter:
    """One segment."""

    def __init__(self, file: File, size_bytes: int, position: int, settings: MmapSettings) -> None:
        self._file = file
        self._map = file.map(size_bytes, writable=True)
        self._locked = settings.lock_memory
        if self._locked:
            memory.lock(self._map)
        if settings.warm:
            memory.touch(self._map, position)
        self._view = memoryview(self._map).toreadonly()
        self._end = position

    def write(self, position: int, data: Body) -> None:
        """Copy into the map."""
        end = position + len(data)
        self._map[position:end] = data
        self._end = max(self._end, end)

    def view(self, position: int, length: int) -> memoryview:
        """Memory of the file itself."""
        return self._view[position : position + length]

    def commit(self) -> int:
        """Everything is in the page cache already."""
        return self._end

    def sync(self) -> None:
        """``fdatasync``."""
        self._file.sync()

    def close(self) -> None:
        """Close the file; the map goes with the last view of it."""
        if self._locked:
            self._locked = False
            with suppress(OSError):
                memory.unlock(self._map)
        self._file.close()


class MmapWriter:
    """Opens :class:`MmapSegmentWriter`."""

    traits = WriterTraits()

    def __init__(self, settings: MmapSettings) -> None:
        self._settings = settings

    def open(self, file: File, size_bytes: int, position: int) -> MmapSegmentWriter:
        """Map the segment."""
        return MmapSegmentWriter(file, size_bytes, position, self._settings)


def make(settings: MmapSettings, _context: Context) -> MmapWriter:
    """Build the writer from its section."""
    return MmapWriter(settings)
