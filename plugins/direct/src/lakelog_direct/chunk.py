"""One aligned buffer of a segment, and its way to the disk.

Whole blocks are written from the buffer itself: nobody changes them any more. The block that is not
full yet is copied first, with zeros behind its end, because puts go on filling it; it is written
anew whenever more of it is committed.
"""

from __future__ import annotations

import mmap
from concurrent.futures import Future
from threading import Lock

from lakelog.files.filesystem import File
from lakelog_direct import memory
from lakelog_direct.buffers import Loan


class Chunk:
    """A run of a segment in memory; positions are bytes from the start of the segment.

    :ivar start: its first byte
    :ivar end: behind its last one
    :ivar memory: where puts write
    :ivar view: what readers see
    :ivar flight: its writing in another thread, once it is full
    """

    def __init__(self, loan: Loan, start: int, end: int, written: int, block_bytes: int) -> None:
        self.start = start
        self.end = end
        self.memory: mmap.mmap = loan.buffer.memory
        self.view = loan.view
        self.flight: Future[None] | None = None
        loan.buffer.used_bytes = end - start
        self._written = written
        self._block = block_bytes
        self._failure: OSError | None = None
        self._lock = Lock()

    def write_out(self, file: File, target: int, spare: mmap.mmap) -> None:
        """Write what is new up to ``target``; after one failure every call fails.

        :param spare: memory for small writes and blocks that are not full; the caller's alone
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
        first = self._written - self._written % self._block
        whole = target - target % self._block
        if target > whole and target - first <= len(spare):
            whole = first  # one write for all of it
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
    """Memory for :meth:`Chunk.write_out`."""
    return memory.anonymous(max(block_bytes, 1 << 16))
