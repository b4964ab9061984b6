"""The writer ``staged``: RocketMQ's ``TransientStorePool``.

A put copies into a buffer as long as the segment; a commit writes what is new into the page cache,
where others see it. The buffer goes back to the pool once the segment is sealed, all of it is
committed, and nobody holds a view.
"""

from __future__ import annotations

import mmap
from threading import Lock

from lakelog.errors import SettingsError
from lakelog.files.filesystem import File
from lakelog.interfaces import Context, WriterTraits
from lakelog.message import Body
from lakelog_direct.buffers import BufferPool, Loan
from lakelog_direct.order import check_order
from lakelog_direct.settings import StagedSettings, commit_rules


class StagedSegmentWriter:
    """One segment."""

    def __init__(self, file: File, size_bytes: int, position: int, pool: BufferPool) -> None:
        self._file = file
        self._pool = pool
        self._size_bytes = size_bytes
        self._base = position - position % mmap.PAGESIZE
        self._old = self._mapped() if position else None
        self._end = self._committed = position
        self._sealed = False
        self._failure: OSError | None = None
        self._lock = Lock()

    def begin(self, loan: Loan) -> None:
        """Take the buffer in use; what stands in its first page is copied into it."""
        self._loan: Loan | None = loan
        self._memory = loan.buffer.memory
        if self._old is not None:
            self._memory[self._base : self._end] = self._old[self._base : self._end]

    def _mapped(self) -> memoryview:
        return memoryview(self._file.map(self._size_bytes, writable=False))

    def write(self, position: int, data: Body) -> None:
        """Copy into the buffer."""
        if position != self._end:
            check_order(position, self._end)
        end = position + len(data)
        self._memory[position:end] = data
        self._end = end

    def view(self, position: int, length: int) -> memoryview:
        """Memory of the buffer; of the page cache before it, and once it is given back."""
        loan, end = self._loan, position + length
        if loan is None or end <= self._base:
            assert self._old is not None
            return self._old[position:end]
        if position >= self._base:
            return loan.view[position:end]
        assert self._old is not None
        return memoryview(bytes(self._old[position : self._base]) + loan.view[self._base : end])

    def seal(self) -> None:
        """Nothing more is written: the buffer may go once all is committed."""
        self._sealed = True

    def commit(self) -> int:
        """Write what is new into the page cache; after one failure every commit fails."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            sealed, end = self._sealed, self._end  # in this order: what is sealed has its end
            if end > self._committed:
                self._put_through(end)
            if sealed and self._loan is not None:
                self._give_back()
        self._pool.tidy()
        return end

    def _put_through(self, end: int) -> None:
        loan = self._loan
        assert loan is not None
        loan.buffer.used_bytes = end
        try:
            self._file.write_at(self._committed, loan.view[self._committed : end])
        except OSError as error:
            self._failure = error
            raise
        self._committed = end

    def _give_back(self) -> None:
        self._old = self._old or self._mapped()
        self._loan = None
        del self._memory

    def sync(self) -> None:
        """``fdatasync`` of what was committed."""
        self._file.sync()

    def close(self) -> None:
        """Close the file; what is not committed is lost. The buffer goes with the last view."""
        loan = self._loan
        if loan is not None:
            loan.buffer.used_bytes = self._end
        self._file.close()


class StagedWriter:
    """Opens :class:`StagedSegmentWriter`."""

    def __init__(self, settings: StagedSettings, segment_size_bytes: int) -> None:
        self.traits = WriterTraits(
            staged=True, zero_copy_reads=False, commit=commit_rules(settings)
        )
        self._settings = settings
        self._pool = BufferPool(
            segment_size_bytes, limit=settings.pool_size, lock=settings.lock_memory
        )

    def open(self, file: File, size_bytes: int, position: int) -> StagedSegmentWriter:
        """Lend a buffer to the segment; raises ``OSError`` where none comes back in time."""
        if self._settings.lock_memory:
            self._pool.fill()
        loan = self._pool.take(self._settings.pool_wait_ms / 1000)
        segment = StagedSegmentWriter(file, size_bytes, position, self._pool)
        segment.begin(loan)
        return segment


def make(settings: StagedSettings, context: Context) -> StagedWriter:
    """Build the writer from its section."""
    if settings.replica:
        raise SettingsError(
            "a replica (brokerRole=SLAVE) must not be staged: it would count as copied what dies "
            "with its process; choose writer = 'file'",
            key="staged.replica",
        )
    return StagedWriter(settings, context.core.segment_size_bytes)
