"""The writer ``direct``: O_DIRECT writes from aligned buffers, bypassing the page cache.

A put copies into a buffer. Another thread writes a buffer as soon as it is full. ``commit`` writes
the rest; other processes see it only then. Readers are served from the buffers while these exist,
later from the file.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Final

from lakelog.errors import SettingsError, StoreError
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.interfaces import Context, WriterTraits
from lakelog.message import Body
from lakelog.runtime.threads import soon_done
from lakelog_direct.buffers import BufferPool
from lakelog_direct.chunk import Chunk, spare_memory
from lakelog_direct.odirect import check_directory, switch_on
from lakelog_direct.order import check_order
from lakelog_direct.settings import DirectSettings, commit_rules

_THREAD: Final = "lakelog-direct"


class DirectSegmentWriter:
    """Writes one segment."""

    def __init__(
        self,
        file: File,
        size_bytes: int,
        position: int,
        pool: BufferPool,
        settings: DirectSettings,
    ) -> None:
        switch_on(file, settings.block_bytes)
        self._file = file
        self._pool = pool
        self._settings = settings
        self._size_bytes = size_bytes
        self._map = memoryview(file.map(size_bytes, writable=False))
        self._spare = spare_memory(settings.block_bytes)
        self._threads: ThreadPoolExecutor | None = None
        self._lock = Lock()
        self._sealed = False
        self._end = position
        self._chunks: tuple[Chunk, ...] = ()
        self._begin(position)

    def _begin(self, position: int) -> None:
        """Continue in the buffer that contains ``position``, after loading its earlier bytes."""
        start = position - position % self._pool.buffer_bytes
        self._add(start, written=position)
        self._memory[: position - start] = self._map[start:position]

    def _add(self, start: int, *, written: int) -> None:
        end = min(start + self._pool.buffer_bytes, self._size_bytes)
        chunk = Chunk(self._pool.take(0), start, end, written, self._settings.block_bytes)
        self._chunks = (*self._chunks, chunk)
        self._chunk, self._start, self._room = chunk, start, end - start
        self._memory = chunk.memory

    # --- writing ---

    def write(self, position: int, data: Body) -> None:
        """Copy into the buffer; a full buffer is passed to a writer thread."""
        if position != self._end:
            check_order(position, self._end)
        first = position - self._start
        behind = first + len(data)
        if behind < self._room:
            self._memory[first:behind] = data
        else:
            self._spread(position, memoryview(data))
        self._end = position + len(data)

    def _spread(self, position: int, data: memoryview) -> None:
        """Copy across buffer boundaries; a buffer is full once its last byte is written."""
        while data:
            if position == self._chunk.end:
                self._add(position, written=position)
                self._trim()
            first = position - self._start
            piece = data[: self._room - first]
            self._memory[first : first + len(piece)] = piece
            position, data = position + len(piece), data[len(piece) :]
            if position == self._chunk.end:
                self._hand_on(self._chunk)

    def _hand_on(self, chunk: Chunk) -> None:
        if self._settings.threads == 0:
            chunk.write_out(self._file, chunk.end, self._spare)
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._settings.threads, _THREAD)
        write = partial(chunk.write_out, self._file, chunk.end, self._spare)
        chunk.flight = soon_done(self._threads.submit, _THREAD, write)

    def _trim(self) -> None:
        """Release the oldest buffers; waits for their writes, and raises their errors."""
        while len(self._chunks) > self._settings.buffers:
            _landed(self._chunks[0].flight)
            self._chunks = self._chunks[1:]

    # --- reading ---

    def view(self, position: int, length: int) -> memoryview:
        """A view of a buffer or of the file; a copy if the range spans several."""
        chunks, end = self._chunks, position + length
        if not chunks or end <= chunks[0].start:
            return self._map[position:end]
        for chunk in reversed(chunks):
            if chunk.start <= position:
                if end <= chunk.end:
                    return chunk.view[position - chunk.start : end - chunk.start]
                break
        return self._joined(chunks, position, end)

    def _joined(self, chunks: tuple[Chunk, ...], position: int, end: int) -> memoryview:
        parts = [self._map[position : min(end, chunks[0].start)]] if position < end else []
        for chunk in chunks:
            first, behind = max(position, chunk.start), min(end, chunk.end)
            if first < behind:
                parts.append(chunk.view[first - chunk.start : behind - chunk.start])
        parts.append(self._map[max(position, chunks[-1].end) : end])
        return memoryview(b"".join(parts))

    # --- durability ---

    def seal(self) -> None:
        """Mark the segment as complete: the buffers are released once all is committed."""
        self._sealed = True

    def commit(self) -> int:
        """Write all new bytes, the last block padded; waits for writes in progress."""
        with self._lock:
            sealed, end = self._sealed, self._end  # in this order: once sealed, the end is final
            for chunk in self._chunks:
                chunk.write_out(self._file, min(end, chunk.end), self._spare)
            if sealed:
                self._chunks = ()
        return end

    def sync(self) -> None:
        """``fdatasync``: flushes the device's cache and the metadata of the blocks."""
        self._file.sync()

    def close(self) -> None:
        """Close the file after all its writes have finished."""
        if self._threads is not None:
            self._threads.shutdown()
        self._file.close()


def _landed(flight: Future[None] | None) -> None:
    if flight is not None:
        flight.result()


class DirectWriter:
    """Opens :class:`DirectSegmentWriter`."""

    def __init__(self, settings: DirectSettings) -> None:
        self.traits = WriterTraits(
            alignment_bytes=settings.block_bytes,
            staged=True,
            zero_copy_reads=False,
            commit=commit_rules(settings),
        )
        self._settings = settings
        self._pool = BufferPool(settings.buffer_bytes, limit=None)

    def open(self, file: File, size_bytes: int, position: int) -> DirectSegmentWriter:
        """Open a segment with O_DIRECT; raises ``OSError`` if that is not supported."""
        return DirectSegmentWriter(file, size_bytes, position, self._pool, self._settings)


def _check_place(settings: DirectSettings, context: Context) -> None:
    """Check for O_DIRECT before any file of a store is created."""
    try:
        check_directory(context.core.commitlog(context.path), settings.block_bytes)
    except OSError as error:
        raise StoreError(error.strerror or str(error), path=error.filename) from error


def make(settings: DirectSettings, context: Context) -> DirectWriter:
    """Build the writer from its section.

    Raises :class:`~lakelog.errors.SettingsError` unless segments consist of whole blocks, and
    :class:`~lakelog.errors.StoreError` without O_DIRECT.
    """
    size = context.core.segment_size_bytes
    if size % settings.block_bytes:
        raise SettingsError(
            f"the writer 'direct' needs segments of whole blocks of {settings.block_bytes} bytes "
            f"([direct] block_bytes), not of {size} bytes",
            key="segment_size_bytes",
        )
    if isinstance(context.files, RealFileSystem):  # other implementations report it on first use
        _check_place(settings, context)
    return DirectWriter(settings)
