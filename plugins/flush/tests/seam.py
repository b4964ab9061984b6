"""Files that keep account of what a sync covers, and that a test can slow down, stall and break."""

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
    """A segment whose writes all come by ``write_at``.

    :ivar written: end of what was written
    :ivar durable: end of what was written before a sync began that has returned
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
    """The operating system's files, the segments among them as :class:`SegmentFile`.

    :ivar sync_seconds: how much longer each sync of a segment takes
    :ivar segments: by the offset at which they start
    """

    sync_seconds: float
    segments: dict[int, SegmentFile]

    def __init__(self) -> None:
        go = threading.Event()
        go.set()
        begun = threading.Event()
        for name, value in {
            "go": go,
            "begun": begun,
            "sync_seconds": 0.0,
            "segments": {},
            "broken": False,
        }.items():
            object.__setattr__(self, name, value)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        if not (path.name.isdigit() and path.parent.name in ("commitlog", "tmp")):
            return file
        found = SegmentFile(file, self)
        known = self.segments.get(int(path.name))
        if known is not None:  # opened once more: the clean stop is noted
            found.written, found.durable, found.syncs = known.written, known.durable, known.syncs
        self.segments[int(path.name)] = found
        return found

    def wait(self) -> None:
        """What each sync of a segment goes through."""
        self.begun.set()
        time.sleep(self.sync_seconds)
        self.go.wait()
        if self.broken:
            raise OSError(errno.EIO, "this test's disk fails")

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Let syncs hang meanwhile."""
        self.begun.clear()
        self.go.clear()
        try:
            yield
        finally:
            self.go.set()

    def break_syncs(self) -> None:
        """Let this and every later sync fail."""
        object.__setattr__(self, "broken", True)
        self.go.set()

    def slow_down(self, seconds: float) -> None:
        """Let each sync take longer."""
        object.__setattr__(self, "sync_seconds", seconds)

    @property
    def syncs(self) -> int:
        """Of all segments."""
        return sum(file.syncs for file in list(self.segments.values()))

    def covers(self, offset: int, end_offset: int) -> bool:
        """Whether a sync that returned began after the record there was written."""
        start = max(each for each in self.segments if each <= offset)
        return self.segments[start].durable >= end_offset - start

    go: threading.Event
    begun: threading.Event
    broken: bool
