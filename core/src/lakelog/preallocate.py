"""New segments, made whole before anybody sees them, and ahead of need.

A segment is allocated in a temporary folder of the same file system, synced, renamed into place,
and its directory synced: no short or stray name ever stands among the segments.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import attrs

from lakelog.files import File, FileSystem
from lakelog.layout import segment_name


@attrs.frozen
class SegmentMaker:
    """Makes full-size segment files.

    :ivar directory: where segments stand
    :ivar temporary: a folder of the same file system
    """

    files: FileSystem
    directory: Path
    temporary: Path
    size_bytes: int

    def path(self, start_offset: int) -> Path:
        """Where the segment that starts at ``start_offset`` stands."""
        return self.directory / segment_name(start_offset)

    def make(self, start_offset: int) -> File:
        """Make a segment; raises ``OSError``, and then leaves nothing behind."""
        target = self.path(start_offset)
        temporary = self.temporary / target.name
        file = self.files.open(temporary, write=True, create=True)
        try:
            file.allocate(self.size_bytes)
            file.sync()
            self.files.rename(temporary, target)
            self.files.sync_dir(self.directory)
        except BaseException:  # Ctrl-C too: a partial file would fill the disk
            file.close()
            with suppress(OSError):
                self.files.unlink(temporary)
            raise
        return file

    def adopt(self, start_offset: int) -> File:
        """Open a segment that is there for writing, all of it allocated."""
        file = self.files.open(self.path(start_offset), write=True)
        try:
            file.allocate(self.size_bytes)
        except BaseException:  # Ctrl-C too: nobody else could close it
            file.close()
            raise
        return file

    def remove(self, start_offset: int) -> None:
        """Delete a segment durably."""
        self.files.unlink(self.path(start_offset))
        self.files.sync_dir(self.directory)


class Preallocator:
    """Has the next segment ready; one thread of its own, which only makes files."""

    def __init__(self, maker: SegmentMaker, ahead: bool) -> None:
        self._maker = maker
        self._ahead = ahead
        self._ready: dict[int, Future[File]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lakelog-preallocate")

    def stock(self, start_offset: int, file: File) -> None:
        """Take over an empty segment that is there already."""
        done: Future[File] = Future()
        done.set_result(file)
        self._ready[start_offset] = done

    def request(self, start_offset: int) -> None:
        """Begin to make the segment at ``start_offset``, if segments are made ahead of need."""
        if self._ahead and start_offset not in self._ready:
            self._ready[start_offset] = self._pool.submit(self._maker.make, start_offset)

    def take(self, start_offset: int) -> File:
        """The segment at ``start_offset``; raises ``OSError`` only if it cannot be made now.

        A failure ahead of need is forgotten: the segment is tried again when it is needed.
        """
        future = self._ready.pop(start_offset, None)
        if future is not None:
            with suppress(OSError):
                return future.result()
        return self._maker.make(start_offset)

    def close(self) -> None:
        """Stop, and delete segments that were made and never used."""
        self._pool.shutdown()
        for start_offset in sorted(self._ready, reverse=True):
            with suppress(OSError):
                self._ready.pop(start_offset).result().close()
                self._maker.remove(start_offset)
