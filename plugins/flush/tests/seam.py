"""Files that record the bytes that syncs cover, and that a test can slow down, stall and break."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakelog.files.filesystem import File, RealFileSystem
from lakelog.message import Body
from lakelog_testing import FaultyFile


class SegmentFile(FaultyFile):
    """A segment that is written by ``write_at`` only.

    :ivar written: end of the written bytes
    :ivar durable: end of the bytes written before the start of a completed sync
    """

    def __init__(self, inner: File, disk: Disk) -> None:
        super().__init__(inner)
        self.disk = disk
        self.written = 0
        self.durable = 0

    def write_at(self, position: int, data: Body) -> None:
        super().write_at(position, data)
        self.written = max(self.written, position + len(data))

    def sync(self) -> None:
        end = self.written
        self.disk.wait()
        super().sync()
        self.durable = max(self.durable, end)


class Disk(RealFileSystem):
    """Real files, with the segments as :class:`SegmentFile`.

    :ivar sync_seconds: additional duration of each sync of a segment
    :ivar segments: segments by start offset
    """

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Event()
        self.go.set()
        self.sync_seconds, self.broken = 0.0, False
        self.segments: dict[int, SegmentFile] = {}

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        if not (path.name.isdigit() and path.parent.name in ("commitlog", "tmp")):
            return file
        found = SegmentFile(file, self)
        known = self.segments.get(int(path.name))
        if known is not None:  # reopened to record the clean stop
            found.written, found.durable, found.syncs = known.written, known.durable, known.syncs
        self.segments[int(path.name)] = found
        return found

    def wait(self) -> None:
        """Called within each sync of a segment."""
        self.begun.set()
        time.sleep(self.sync_seconds)
        self.go.wait()
        if self.broken:
            raise OSError(errno.EIO, "this test's disk fails")

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Stall syncs within the block."""
        self.begun.clear()
        self.go.clear()
        try:
            yield
        finally:
            self.go.set()

    def break_syncs(self) -> None:
        """Make this and every later sync fail."""
        self.broken = True
        self.go.set()

    @property
    def syncs(self) -> int:
        """The number of syncs of all segments."""
        return sum(file.syncs for file in list(self.segments.values()))

    def covers(self, offset: int, end_offset: int) -> bool:
        """Whether a sync that started after the record was written has returned."""
        start = max(each for each in self.segments if each <= offset)
        return self.segments[start].durable >= end_offset - start
