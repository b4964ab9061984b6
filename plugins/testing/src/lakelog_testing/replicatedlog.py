"""A log with bytes in real segment files, for tests of replicators."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lakelog.errors import OffsetOutOfRange
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.files.shared.copied_end import CopiedEnd
from lakelog.format.layout import segment_name
from lakelog.interfaces import CopyProgress
from lakelog_testing.fakelog import FakeLog


class FakeReplicatedLog(FakeLog):
    """A :class:`~lakelog.interfaces.ReplicatedLog` that a test appends to, stalls and cuts.

    :ivar folder: the folder of the segments
    :ivar segment_size_bytes: length of each segment
    :ivar minimum: offset of the first byte that is still there; see :meth:`remove_first`
    :ivar waits_for_disk: whether a flush strategy syncs for the puts
    :ivar copies: the words about copies as in the shared page, in memory of this process
    """

    def __init__(self, folder: Path, *, segment_size_bytes: int = 1 << 16) -> None:
        super().__init__()
        self.folder = folder
        self.segment_size_bytes = segment_size_bytes
        self.minimum = 0
        self.waits_for_disk = False
        self.copies: CopyProgress = CopiedEnd(memoryview(bytearray(64)), 0)
        self.bytes = bytearray()
        self._random = random.Random(1)
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, size: int = 100) -> int:
        """Append ``size`` random bytes, which are committed at once; returns the end of the log."""
        data = self._random.randbytes(size)
        with self._lock:
            start = len(self.bytes)
            self.bytes += data
            for at in range(start - start % self.segment_size_bytes, start + size, self._step):
                self._write(at)
            self.appended = self.committed = len(self.bytes)
            return self.appended

    @property
    def _step(self) -> int:
        return self.segment_size_bytes

    def _write(self, at: int) -> None:
        path = self.folder / segment_name(at)
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.write(self.bytes[at : at + self._step])
            file.truncate(self._step)

    def remove_first(self) -> None:
        """Delete the first segment."""
        first, self.minimum = self.minimum, self.minimum + self._step
        (self.folder / segment_name(first)).unlink()

    def open_segment(self, start_offset: int) -> File:
        """Open a segment's file; raises ``OffsetOutOfRange`` for a deleted one."""
        if start_offset >= self.minimum:
            with suppress(FileNotFoundError):
                return RealFileSystem().open(self.folder / segment_name(start_offset))
        raise OffsetOutOfRange(f"offset {start_offset} was deleted", offset=start_offset)

    def wait_moved(self, durable_end: int, committed_end: int, timeout_s: float) -> bool:
        """Poll until a position is beyond the given one."""
        return _poll(
            lambda: self.flushed > durable_end or self.committed > committed_end, timeout_s
        )


def _poll(is_so: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.0005)
    return True
