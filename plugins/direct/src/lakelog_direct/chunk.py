"""One aligned buffer of a segment, and its output to the disk.

Whole blocks are written directly from the buffer, because they no longer change. The last,
incomplete block is copied first and padded with zeros, because puts continue to fill it. It is
written again whenever more of it is committed.
"""

from __future__ import annotations

import mmap
from concurrent.futures import Future
from threading import Lock

from lakelog.files.filesystem import File
from lakelog_direct import memory
from lakelog_direct.buffers import TakenBuffer


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
        self.flight: Future[None] | None = None
        taken.buffer.used_bytes = end - start
        self._written = written
        self._block = block_bytes
        self._failure: OSError | None = None
        self._lock = Lock()

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


def spare_memory(block_bytes: int) -> mmap.mmap:
    """Scratch memory for :meth:`Chunk.write_out`."""
    return memory.anonymous(max(block_bytes, 1 << 16))
