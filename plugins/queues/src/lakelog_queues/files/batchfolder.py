"""Files of one size in a folder, as one run of bytes: what queues of batches and their like share.

A file is named by the offset of its first byte in 20 digits, is sparse, and has its full length
from the start. It is written by ``pwrite`` only, so that a full disk is an error and no signal.
One thread writes; any thread reads.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final

from lakelog.errors import CorruptQueue
from lakelog.files.filesystem import FileSystem
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format.layout import segment_name
from lakelog_queues.dispatching.dirty import DirtyFiles
from lakelog_queues.files.openfiles import OpenFiles

_MOST_OPEN: Final = 2
_WIPED_AT_ONCE: Final = 1 << 16


class SizedFiles:
    """Files of ``size_bytes`` in one directory; offsets count from the first file ever made.

    :param opened: open files that folders share; without it, this one keeps two of its own open
    :ivar bases: offset of the first byte of each file, in order; the writer's alone
    """

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        size_bytes: int,
        *,
        read_only: bool,
        opened: OpenFiles | None = None,
    ) -> None:
        self.directory = directory
        self.size_bytes = size_bytes
        self.bases: list[int] = []
        self._paths: dict[int, Path] = {}
        self._files = files
        if opened is None:
            opened = OpenFiles(files, write=not read_only, most=_MOST_OPEN)
        self._opened = opened
        self._dirty = DirtyFiles(files, self._opened)

    def load(self) -> None:
        """List the files; raises :class:`~lakelog.errors.CorruptQueue` if they do not fit."""
        self.close()  # other files may have these names by now
        found = segment_files(self.directory, self._files.list(self.directory))
        for file in found:
            self._check(file)
        for before, behind in pairwise(found):
            self._check_neighbours(before, behind)
        self.bases = [file.start_offset for file in found]

    def path(self, offset: int) -> Path:
        """The file in which ``offset`` stands."""
        base = offset - offset % self.size_bytes
        path = self._paths.get(base)  # making a path takes longer than reading a unit
        if path is None:
            path = self._paths[base] = self.directory / segment_name(base)
        return path

    def left(self, offset: int) -> int:
        """Bytes from ``offset`` to the end of its file."""
        return self.size_bytes - offset % self.size_bytes

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes of one file; fewer where it is shorter or not there."""
        length = min(length, self.left(offset))
        return self._opened.read(self.path(offset), offset % self.size_bytes, length)

    def write(self, offset: int, data: bytes) -> None:
        """Write into one file; makes it if ``offset`` is its first byte or there is none yet."""
        path, position = self.path(offset), offset % self.size_bytes
        if not self.bases or offset - position > self.bases[-1]:
            self._make(offset - position)
        with self._opened.use(path) as file:
            if file.size() < self.size_bytes:  # a crash came between its making and its length
                file.truncate(self.size_bytes)
            file.write_at(position, data)
        self._dirty.wrote(path, position, position + len(data))

    def cut(self, end: int) -> None:
        """Remove what stands from ``end`` on, durably: none of it can show up again."""
        before = len(self.bases)
        while self.bases and self.bases[-1] >= end:
            self._remove(len(self.bases) - 1)
        if len(self.bases) < before:
            self._files.sync_dir(self.directory)
        if self.bases and end < self.bases[-1] + self.size_bytes:
            self._wipe(end)

    def remove_front(self, end: int) -> int:
        """Remove files that end before ``end``, from the front, but never the last one; how many.

        Each is durably gone before the next, so that no crash leaves a gap.
        """
        removed = 0
        while len(self.bases) > 1 and self.bases[0] + self.size_bytes < end:
            self._remove(0)
            self._files.sync_dir(self.directory)
            removed += 1
        return removed

    def distrust(self) -> None:
        """Sync all of it at the next flush: who wrote it may have died before a sync."""
        if self.bases:
            self._dirty.named_above(self.directory)
        for base in self.bases:
            self._dirty.wrote(self.path(base), 0, self.size_bytes)

    def flush(self, least_pages: int) -> None:
        """Make durable the files of which at least so many pages changed; 0 is all."""
        self._dirty.sync(least_pages)

    def close(self) -> None:
        """Let go of the files; nothing is synced."""
        for path in list(self._paths.values()):
            self._opened.drop(path)

    def _check(self, file: SegmentFile) -> None:
        if file.start_offset % self.size_bytes or file.length not in (0, self.size_bytes):
            raise CorruptQueue(
                f"every file here has {self.size_bytes} bytes and starts at a multiple of that; "
                f"found {file.length} bytes at offset {file.start_offset}; correct the setting of "
                "the size, or rebuild the queues",
                path=file.path,
            )

    def _check_neighbours(self, before: SegmentFile, behind: SegmentFile) -> None:
        expected = before.start_offset + self.size_bytes
        if behind.start_offset != expected:
            raise CorruptQueue(
                f"files are missing before this one: expected one at offset {expected}, found "
                f"{behind.start_offset}; rebuild the queues",
                path=behind.path,
            )

    def _make(self, base: int) -> None:
        self._dirty.make_dir(self.directory)
        with self._opened.use(self.path(base), create=True) as file:
            file.truncate(self.size_bytes)
        self._dirty.named(self.directory)
        self.bases.append(base)

    def _remove(self, at: int) -> None:
        path = self.path(self.bases[at])
        self._opened.drop(path)
        self._dirty.forget(path)
        self._files.unlink(path)
        self._dirty.named(self.directory)
        del self.bases[at]

    def _wipe(self, end: int) -> None:
        with self._opened.use(self.path(end)) as file:
            position, size, wiped = end % self.size_bytes, file.size(), False
            while (found := file.next_data(position)) is not None and found < size:
                position = found
                data = file.read_at(position, min(_WIPED_AT_ONCE, size - position))
                if data.strip(b"\x00"):
                    file.write_at(position, bytes(len(data)))
                    wiped = True
                position += len(data)
            if wiped:
                file.sync()
