"""A pool of equal buffers that are reused only when no view of them is left.

A buffer is lent: its writer and every view keep the loan alive. When the last of them is released,
in any thread, the buffer returns to the pool. Calls on memory that Python lacks, or makes with the
interpreter lock held, are made by ctypes.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from contextlib import suppress
from queue import Empty, SimpleQueue

PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def anonymous(length: int) -> mmap.mmap:
    """Zeroed, page-aligned memory, allocated by the system on first write."""
    found = mmap.mmap(-1, length, flags=PRIVATE)
    with suppress(OSError):  # on systems without huge pages
        found.madvise(mmap.MADV_HUGEPAGE)  # one fault per 2 MiB
    return found


def mlock(memory: mmap.mmap) -> None:
    """Lock ``memory`` into RAM; raises ``OSError``, usually because of ``RLIMIT_MEMLOCK``."""
    libc = ctypes.CDLL(None, use_errno=True)
    start = ctypes.c_char.from_buffer(memory)
    if libc.mlock(ctypes.byref(start), ctypes.c_size_t(len(memory))):
        code = ctypes.get_errno()
        raise OSError(
            code,
            f"mlock of {len(memory)} bytes: {os.strerror(code)}; raise RLIMIT_MEMLOCK, "
            "or switch lock_memory off",
        )


class Buffer:
    """Memory that can be lent.

    :ivar memory: the memory for writers
    :ivar used_bytes: length of the part that may be non-zero
    """

    def __init__(self, length: int, *, lock: bool) -> None:
        self.memory: mmap.mmap = anonymous(length)
        self.used_bytes = 0
        if lock:
            mlock(self.memory)

    def clean(self) -> None:
        """Zero the used part: views may extend past the written bytes."""
        if self.used_bytes:
            start = ctypes.c_char.from_buffer(self.memory)
            ctypes.memset(ctypes.addressof(start), 0, self.used_bytes)  # without interpreter lock
            self.used_bytes = 0


class TakenBuffer:
    """A buffer in use by one writer.

    :ivar buffer: the buffer
    :ivar view: its memory for readers; this object and slices of it keep the loan alive
    """

    def __init__(self, buffer: Buffer, returned: SimpleQueue[Buffer]) -> None:
        # Views keep `owner` alive, not the buffer. Its finalizer therefore runs when the last view
        # is gone, and only then returns the buffer to the pool.
        owner = (ctypes.c_char * len(buffer.memory)).from_buffer(buffer.memory)
        weakref.finalize(owner, returned.put, buffer).atexit = False
        self.buffer = buffer
        self.view = memoryview(owner).cast("B").toreadonly()


class BufferPool:
    """Lends buffers.

    Returned buffers go to a ``SimpleQueue``, whose ``put`` is safe in a finalizer of any thread,
    whatever locks that thread holds.
    """

    def __init__(self, buffer_bytes: int, *, limit: int | None, lock: bool = False) -> None:
        self.buffer_bytes = buffer_bytes
        self._limit = limit
        self._lock = lock
        self._made = 0
        self._free: SimpleQueue[Buffer] = SimpleQueue()

    def take(self, wait_seconds: float) -> TakenBuffer:
        """Lend a zeroed buffer; raises ``OSError`` if none is returned in time."""
        buffer = self._any() or self._wait(wait_seconds)
        buffer.clean()
        return TakenBuffer(buffer, self._free)

    def _any(self) -> Buffer | None:
        try:
            return self._free.get_nowait()
        except Empty:
            return self._make() if self._limit is None or self._made < self._limit else None

    def _wait(self, wait_seconds: float) -> Buffer:
        try:
            return self._free.get(timeout=wait_seconds)
        except Empty:
            raise OSError(
                errno.ENOBUFS,
                f"all {self._limit} buffers of {self.buffer_bytes} bytes hold what is not "
                f"committed, or what a reader looks at; waited {wait_seconds:g} s",
            ) from None

    def _make(self) -> Buffer:
        buffer = Buffer(self.buffer_bytes, lock=self._lock)
        self._made += 1
        return buffer

    def fill(self) -> None:
        """Allocate all buffers now, so that no put has to allocate and lock one."""
        while self._limit is not None and self._made < self._limit:
            self._free.put(self._make())

    def tidy(self) -> None:
        """Zero the returned buffers; called outside of puts."""
        for _ in range(self._free.qsize()):
            try:
                buffer = self._free.get_nowait()
            except Empty:
                return
            buffer.clean()
            self._free.put(buffer)


def check_order(position: int, end: int) -> None:
    """Raise ``ValueError`` if a write does not start at the end of the written bytes."""
    if position != end:
        raise ValueError(
            f"a write at {position} bytes into a segment that is written up to {end}; segments are "
            "written in order and without gaps"
        )
