"""The writer ``mmap``: every write is a copy into a shared map of the segment.

Only allocated blocks are mapped for writing, so that a store into the map needs no disk space and
cannot raise SIGBUS, unless another program cuts the file: that kills the process. Reads use
``pread``. Syncs use ``fdatasync``, because ``mmap.flush`` holds the interpreter lock.
"""

from __future__ import annotations

import mmap
import sys

from lakelog.files.filesystem import File, FileMap
from lakelog.hooks import WriterTraits
from lakelog.message import Body
from lakelog_writers.settings import MmapSettings


def touch(memory: mmap.mmap, position: int) -> None:
    """Write a zero to each page from ``position`` on, which must hold no data yet."""
    first = -(-position // mmap.PAGESIZE) * mmap.PAGESIZE
    for at in range(first, len(memory), mmap.PAGESIZE):
        memory[at] = 0


class MmapSegmentWriter:
    """Writes one segment."""

    def __init__(self, file: File, position: int, settings: MmapSettings) -> None:
        self._file = file
        self._settings = settings
        self._map: FileMap | None = None
        self._end = position

    def extend(self, position: int, end: int) -> None:
        """Map the bytes that are written next; the former map, and its memory lock, is released."""
        start = position - position % mmap.PAGESIZE
        extended = self._file.map(end - start, writable=True, position=start)
        if self._settings.lock_memory:
            from lakelog_writers.buffers import mlock  # ctypes: slower to import than a store opens

            mlock(extended)
        if self._settings.warm:
            touch(extended, position - start)
        former, self._map, self._start = self._map, extended, start
        if former is not None:
            former.unmap()

    def write(self, position: int, data: Body) -> None:
        """Copy into the map."""
        end, start = position + len(data), self._start
        assert self._map is not None
        self._map[position - start : end - start] = data
        self._end = max(self._end, end)

    def view(self, position: int, length: int) -> memoryview:
        """A copy of the file's pages."""
        return memoryview(self._file.read_at(position, length))

    def writable_map(self) -> tuple[memoryview, int, int, int]:
        """See :class:`~lakelog.hooks.Mapped`."""
        assert self._map is not None
        return memoryview(self._map), self._start, self._file.fileno(), sys.maxsize

    def commit(self) -> int:
        """The end of the written bytes; they are in the page cache already."""
        return self._end

    def sync(self) -> None:
        """``fdatasync``."""
        self._file.sync()

    def close(self) -> None:
        """Close the file, and end the map."""
        if self._map is not None:
            self._map.unmap()
        self._file.close()


class MmapWriter:
    """Opens :class:`MmapSegmentWriter`."""

    traits = WriterTraits(same_bytes=True)

    def __init__(self, settings: MmapSettings) -> None:
        self._settings = settings

    def open(self, file: File, size_bytes: int, position: int) -> MmapSegmentWriter:  # noqa: ARG002  # declared by Writer
        """Open the segment."""
        return MmapSegmentWriter(file, position, self._settings)
