"""The writer ``staged``: RocketMQ's ``TransientStorePool``.

A put copies into a buffer of the segment's size. A commit writes new bytes to the page cache, where
other processes see them. The buffer returns to the pool once the segment is sealed, fully
committed, and without views.
"""

from __future__ import annotations

import mmap

from lakelog.errors import SettingsError
from lakelog.files.filesystem import File
from lakelog.hooks import Context, WriterTraits
from lakelog.message import Body
from lakelog.runtime.locks import Mutex
from lakelog_writers.buffers import BufferPool, TakenBuffer, check_order
from lakelog_writers.settings import StagedSettings, commit_rules


class StagedSegmentWriter:
    """Writes one segment."""

    def __init__(self, file: File, position: int, pool: BufferPool, taken: TakenBuffer) -> None:
        """Use this buffer, after loading the existing bytes of its first page."""
        self._file = file
        self._pool = pool
        self._base = position - position % mmap.PAGESIZE
        self._end = self._committed = position
        self._sealed = False
        self._failure: OSError | None = None
        self._lock = Mutex()
        self._taken: TakenBuffer | None = taken
        self._memory = taken.buffer.memory
        if position:
            old = file.read_at(self._base, position - self._base)
            self._memory[self._base : self._base + len(old)] = old

    def write(self, position: int, data: Body) -> None:
        """Copy into the buffer."""
        if position != self._end:
            check_order(position, self._end)
        end = position + len(data)
        self._memory[position:end] = data
        self._end = end

    def view(self, position: int, length: int) -> memoryview:
        """A view of the buffer, or a copy of the page cache for bytes that the buffer lacks."""
        taken, end = self._taken, position + length
        if taken is None or end <= self._base:
            return memoryview(self._file.read_at(position, length))
        if position >= self._base:
            return taken.view[position:end]
        old = self._file.read_at(position, self._base - position)
        whole = len(old) == self._base - position  # else the file was cut
        return memoryview(old + taken.view[self._base : end] if whole else old)

    def seal(self) -> None:
        """Mark the segment as complete: the buffer is returned once all is committed."""
        self._sealed = True

    def commit(self) -> int:
        """Write new bytes to the page cache; raises ``OSError``; after one failure always."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            sealed, end = self._sealed, self._end  # in this order: once sealed, the end is final
            if end > self._committed:
                self._put_through(end)
            if sealed and self._taken is not None:
                self._give_back()
        self._pool.tidy()
        return end

    def _put_through(self, end: int) -> None:
        """Write the bytes up to ``end`` that are not in the page cache yet; raises ``OSError``."""
        taken = self._taken
        assert taken is not None
        taken.buffer.used_bytes = end
        try:
            self._file.write_at(self._committed, taken.view[self._committed : end])
        except OSError as error:
            self._failure = error
            raise
        self._committed = end

    def _give_back(self) -> None:
        self._taken = None
        del self._memory

    def sync(self) -> None:
        """``fdatasync`` of the committed bytes."""
        self._file.sync()

    def close(self) -> None:
        """Close the file; uncommitted bytes are lost. The buffer is returned with its last view."""
        taken = self._taken
        if taken is not None:
            taken.buffer.used_bytes = self._end
        self._file.close()


class StagedWriter:
    """Opens :class:`StagedSegmentWriter`."""

    def __init__(self, settings: StagedSettings, segment_size_bytes: int) -> None:
        self.traits = WriterTraits(same_bytes=True, staged=True, commit=commit_rules(settings))
        self._settings = settings
        self._pool = BufferPool(
            segment_size_bytes, limit=settings.pool_size, lock=settings.lock_memory
        )

    def open(self, file: File, size_bytes: int, position: int) -> StagedSegmentWriter:  # noqa: ARG002  # declared by Writer
        """Open a segment with a buffer of the pool; raises ``OSError`` on timeout."""
        if self._settings.lock_memory:
            self._pool.fill()
        taken = self._pool.take(self._settings.pool_wait_ms / 1000)
        return StagedSegmentWriter(file, position, self._pool, taken)


def make(settings: StagedSettings, context: Context) -> StagedWriter:
    """Build the writer from its section; raises ``SettingsError`` for a replica."""
    if settings.replica:
        raise SettingsError(
            "a replica (brokerRole=SLAVE) must not be staged: it would count as copied what dies "
            "with its process; choose writer = 'file'",
            key="staged.replica",
        )
    return StagedWriter(settings, context.core.segment_size_bytes)
