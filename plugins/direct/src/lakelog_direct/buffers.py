"""Buffers of one size that are used again, but never while somebody holds a view of them.

A buffer is lent: its writer and every view keep the loan alive, and the last of them to go brings
the buffer back, in whatever thread that happens.
"""

from __future__ import annotations

import errno
import mmap
import weakref
from queue import Empty, SimpleQueue

from lakelog_direct import memory


class Buffer:
    """Memory that can be lent.

    :ivar memory: what writers write into
    :ivar used_bytes: how much of it may be other than zero
    """

    def __init__(self, length: int, *, lock: bool) -> None:
        self.memory: mmap.mmap = memory.anonymous(length)
        self.used_bytes = 0
        if lock:
            memory.lock(self.memory)

    def clean(self) -> None:
        """Zero what was used: views reach behind the end of what was written."""
        if self.used_bytes:
            memory.zero(self.memory, self.used_bytes)
            self.used_bytes = 0


class Loan:
    """A buffer in use, as one writer holds it.

    :ivar buffer: the buffer
    :ivar view: its memory for readers; whoever holds this, or a slice of it, keeps the loan alive
    """

    def __init__(self, buffer: Buffer, returned: SimpleQueue[Buffer]) -> None:
        owner = memory.owned(buffer.memory)
        weakref.finalize(owner, returned.put, buffer).atexit = False
        self.buffer = buffer
        self.view = memoryview(owner).cast("B").toreadonly()


class BufferPool:
    """Lends buffers.

    ``SimpleQueue.put`` may be called from a finalizer in any thread, whatever that thread holds.
    """

    def __init__(self, buffer_bytes: int, *, limit: int | None, lock: bool = False) -> None:
        self.buffer_bytes = buffer_bytes
        self._limit = limit
        self._lock = lock
        self._made = 0
        self._free: SimpleQueue[Buffer] = SimpleQueue()

    def take(self, wait_seconds: float) -> Loan:
        """Lend a zeroed buffer; raises ``OSError`` where none comes back in time."""
        buffer = self._any() or self._wait(wait_seconds)
        buffer.clean()
        return Loan(buffer, self._free)

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
        """Make all buffers now, so that none has to be made, and locked, by a put."""
        while self._limit is not None and self._made < self._limit:
            self._free.put(self._make())

    def tidy(self) -> None:
        """Zero what came back, for whoever has time for it."""
        for _ in range(self._free.qsize()):
            try:
                buffer = self._free.get_nowait()
            except Empty:
                return
            buffer.clean()
            self._free.put(buffer)
