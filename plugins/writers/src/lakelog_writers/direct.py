"""The writer ``direct``: O_DIRECT writes from aligned buffers, bypassing the page cache.

A put copies into a buffer. Another thread writes a buffer as soon as it is full. ``commit`` writes
the rest; other processes see it only then. Readers are served from the buffers while these exist,
later from the file.

Whole blocks are written directly from the buffer, because they no longer change. The last,
incomplete block is copied first and padded with zeros, because puts continue to fill it. It is
written again whenever more of it is committed.

O_DIRECT is enabled and verified: nothing here falls back silently. ``statx`` with
``STATX_DIOALIGN`` (Linux 6.1) returns the alignment that a file system requires. Without that, a
file system that accepts the flag is considered capable. Exceptions are file systems in memory
(tmpfs): they accept it since Linux 6.6, but have only the page cache.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from lakelog.errors import SettingsError, StoreError
from lakelog.files.filesystem import Descriptor, File, OpenedFile, RealFile, RealFileSystem
from lakelog.hooks import Context, WriterTraits
from lakelog.message import Body
from lakelog.runtime.locks import Mutex
from lakelog.runtime.threads import LockFreeFuture, Workers, soon_done
from lakelog_writers.buffers import BufferPool, TakenBuffer, anonymous, check_order
from lakelog_writers.settings import DirectSettings, commit_rules

_AT_EMPTY_PATH: Final = 0x1000
_STATX_DIOALIGN: Final = 0x2000
_STATX_BYTES: Final = 256
_MEMORY_ALIGN_AT: Final = 0x98
"""``stx_dio_mem_align``, then ``stx_dio_offset_align``, four bytes each."""
_IN_MEMORY: Final = frozenset({0x0102_1994, 0x8584_58F6, 0x9584_58F6})
"""Types of file systems by ``statfs(2)``: tmpfs, ramfs, hugetlbfs."""
_STATFS_BYTES: Final = 256
_BUFFERED: Final = "its file system takes O_DIRECT, and buffers all the same"
_THREAD: Final = "lakelog-direct"


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
        try:  # before any file of a store is created
            check_directory(context.core.commitlog(context.path), settings.block_bytes)
        except OSError as error:
            raise StoreError(error.strerror or str(error), path=error.filename) from error
    return DirectWriter(settings)


class DirectWriter:
    """Opens :class:`DirectSegmentWriter`."""

    def __init__(self, settings: DirectSettings) -> None:
        self.traits = WriterTraits(
            same_bytes=True,
            alignment_bytes=settings.block_bytes,
            staged=True,
            commit=commit_rules(settings),
        )
        self._settings = settings
        self._pool = BufferPool(settings.buffer_bytes, limit=None)

    def open(self, file: File, size_bytes: int, position: int) -> DirectSegmentWriter:
        """Open a segment with O_DIRECT; raises ``OSError`` if that is not supported."""
        return DirectSegmentWriter(file, size_bytes, position, self._pool, self._settings)


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
        # Reads use the page cache, and need no alignment.
        if isinstance(file, RealFile):
            self._read = OpenedFile(file.reopened())
        else:
            link, flags = f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC
            self._read = OpenedFile(RealFile.opened(file.path, None, Descriptor.open, link, flags))
        self._spare = anonymous(max(settings.block_bytes, 1 << 16))
        self._threads: Workers | None = None
        self._lock = Mutex()
        self._sealed = False
        self._end = position
        self._chunks: tuple[Chunk, ...] = ()
        self._begin(position)

    def _begin(self, position: int) -> None:
        """Continue in the buffer that contains ``position``, after loading its earlier bytes."""
        start = position - position % self._pool.buffer_bytes
        self._add(start, written=position)
        old = self._read.read(start, position - start)
        self._memory[: len(old)] = old

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
        """Let a thread write a full buffer; without threads, write it here."""
        if self._settings.threads == 0:
            chunk.write_out(self._file, chunk.end, self._spare)
            return
        if self._threads is None:
            self._threads = Workers(_THREAD, self._settings.threads)
        write = partial(chunk.write_out, self._file, chunk.end, self._spare)
        chunk.flight = soon_done(self._threads.submit, _THREAD, write)

    def _trim(self) -> None:
        """Release the oldest buffers; waits for their writes, and raises their errors."""
        while len(self._chunks) > self._settings.buffers:
            if (flight := self._chunks[0].flight) is not None:
                flight.result()
            self._chunks = self._chunks[1:]

    # --- reading ---

    def view(self, position: int, length: int) -> memoryview:
        """A view of a buffer, or a copy if that does not have the whole range."""
        chunks, end = self._chunks, position + length
        if not chunks or end <= chunks[0].start:
            return memoryview(self._read.read(position, length))
        for chunk in reversed(chunks):
            if chunk.start <= position:
                if end <= chunk.end:
                    return chunk.view[position - chunk.start : end - chunk.start]
                break
        return self._joined(chunks, position, end)

    def _joined(self, chunks: tuple[Chunk, ...], position: int, end: int) -> memoryview:
        """A copy of a range that spans the file and buffers."""
        before, behind = min(end, chunks[0].start), max(position, chunks[-1].end)
        parts = [memoryview(self._read.read(position, max(before - position, 0)))]
        if len(parts[0]) < before - position:  # the file was cut
            return parts[0]
        for chunk in chunks:
            first, last = max(position, chunk.start), min(end, chunk.end)
            if first < last:
                parts.append(chunk.view[first - chunk.start : last - chunk.start])
        parts.append(memoryview(self._read.read(behind, max(end - behind, 0))))
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
        self._read.close()
        self._file.close()


class Chunk:
    """A range of a segment in memory; positions are bytes from the start of the segment.

    :ivar start: its first byte
    :ivar end: its end, exclusive
    :ivar memory: the memory for puts
    :ivar view: the memory for readers
    :ivar flight: its write in another thread, once it is full
    """

    def __init__(
        self, taken: TakenBuffer, start: int, end: int, written: int, block_bytes: int
    ) -> None:
        self.start = start
        self.end = end
        self.memory: mmap.mmap = taken.buffer.memory
        self.view = taken.view
        self.flight: LockFreeFuture[None] | None = None
        taken.buffer.used_bytes = end - start
        self._written = written
        self._block = block_bytes
        self._failure: OSError | None = None
        self._lock = Mutex()

    def write_out(self, file: File, target: int, spare: mmap.mmap) -> None:
        """Write new bytes up to ``target``; raises ``OSError``, after one failure in every call.

        :param spare: scratch memory for small writes and incomplete blocks; used by one caller at a
            time
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if target <= self._written:
                return
            try:
                self._write(file, target, spare)
            except OSError as error:
                self._failure = error
                raise
            self._written = target

    def _write(self, file: File, target: int, spare: mmap.mmap) -> None:
        # O_DIRECT needs whole blocks, so writing starts at the block that was written incompletely
        # before. Small output goes through `spare`, in one write.
        first = self._written - self._written % self._block
        whole = target - target % self._block
        if target > whole and target - first <= len(spare):
            whole = first  # use a single write for all of it
        if whole > first:
            file.write_at(first, self.view[first - self.start : whole - self.start])
        if target > whole:
            file.write_at(whole, self._padded(whole, target, spare))

    def _padded(self, first: int, target: int, spare: mmap.mmap) -> memoryview:
        length = target - first
        padded = -(-length // self._block) * self._block
        spare[:length] = self.view[first - self.start : target - self.start]
        spare[length:padded] = bytes(padded - length)
        return memoryview(spare)[:padded]


def check_directory(directory: Path, block_bytes: int) -> None:
    """Try O_DIRECT with an unnamed file in a folder, or in its nearest existing parent.

    Leaves nothing behind. Raises like :func:`switch_on`. If no such file can be created, it reports
    nothing; the first segment then will.
    """
    while not directory.is_dir() and directory != directory.parent:
        directory = directory.parent
    flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
    try:
        unnamed = RealFile.opened(directory, None, Descriptor.open, directory, flags, 0o600)
    except OSError:
        return
    with closing(unnamed) as file:
        switch_on(file, block_bytes)


def switch_on(file: File, block_bytes: int) -> None:
    """Make all later writes to ``file`` bypass the page cache.

    Raises ``OSError`` if the file system does not support that with blocks of ``block_bytes``.
    """
    fd = file.fileno()
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError as error:
        raise _refused(file.path, f"its file system refuses O_DIRECT ({error.strerror})") from error
    if not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
        raise _refused(file.path, "O_DIRECT did not stay switched on")
    needed = alignment_bytes(fd)
    if needed is None:
        if _in_memory(fd):
            raise _refused(file.path, _BUFFERED)
    elif needed == 0:
        raise _refused(file.path, "its file system has no direct access for this file")
    elif block_bytes % needed:
        raise _refused(
            file.path,
            f"its file system wants blocks of {needed} bytes, not {block_bytes}; set "
            f"[direct] block_bytes to {needed}",
        )


def alignment_bytes(fd: int) -> int | None:
    """The required alignment for direct access to a file; 0 if unsupported, ``None`` if unknown."""
    statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
    if statx is None:
        return None
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(fd, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, found):
        return None
    if not struct.unpack_from("=I", found.raw)[0] & _STATX_DIOALIGN:
        return None
    memory, offset = struct.unpack_from("=II", found.raw, _MEMORY_ALIGN_AT)
    return max(int(memory), int(offset))


def _in_memory(fd: int) -> bool:
    """Whether the file system is in memory, without a disk."""
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None, use_errno=True).fstatfs(fd, found):
        return False
    return int(struct.unpack_from("=q", found.raw)[0]) in _IN_MEMORY


def _refused(path: Path, why: str) -> OSError:
    what = f"the writer 'direct' cannot write here: {why}; choose another writer"
    return OSError(errno.EINVAL, what, str(path))
