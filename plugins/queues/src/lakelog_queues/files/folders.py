"""Files of equal size in a folder, addressed as one sequence of bytes, or by queue offset.

All kinds of queues and ``consumequeue_ext`` use them. A file is named by the offset of its first
byte in 20 digits. It is sparse, and has its full length from the start. Only ``pwrite`` writes to
it, so that a full disk is an error, and not a signal as with a memory map. One thread writes; any
thread reads.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import CorruptQueue
from lakelog.files.filesystem import FileSystem
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format.layout import segment_name
from lakelog_queues.files.openfiles import NOT_HELD, CachedFile, DirtyFiles, OpenFiles, UnitLocation
from lakelog_queues.units.simpleunits import UNIT_BYTES, ordered_length, unit_at, valid_length

_MOST_OPEN: Final = 2
_WIPED_AT_ONCE: Final = 1 << 16
_FIRST_LOOK: Final = 512
_LONGEST_LOOK: Final = 1 << 16


@attrs.define(eq=False)
class SizedFiles:
    """Files of ``size_bytes`` in one directory; offsets count from the first file ever made.

    :param read_only: change and create no file; another process may append meanwhile
    :param opened: open files shared by several folders; without it, two of its own stay open
    :param dirty: writes of several folders that are synced together; without it, its own
    :ivar bases: offset of the first byte of each file, in order; only the writing thread uses it
    """

    _files: FileSystem
    directory: Path
    size_bytes: int
    read_only: bool = attrs.field(default=False, kw_only=True)
    _opened: OpenFiles = attrs.field(kw_only=True)
    _dirty: DirtyFiles = attrs.field(kw_only=True)
    bases: list[int] = attrs.field(factory=list, init=False)
    _paths: dict[int, Path] = attrs.field(factory=dict, init=False)

    @_opened.default
    def _few_opened(self) -> OpenFiles:
        return OpenFiles(self._files, write=not self.read_only, most=_MOST_OPEN)

    @_dirty.default
    def _own_dirty(self) -> DirtyFiles:
        return DirtyFiles(self._files, self._opened)

    def load(self) -> None:
        """List the files.

        Raises :class:`~lakelog.errors.CorruptQueue` for a wrong length or name, or a missing file.
        """
        self.close()  # other files may have these names now
        found = segment_files(self.directory, self._files.list(self.directory))
        for file in found:
            self._check(file)
        for before, behind in pairwise(found):
            self._check_neighbours(before, behind)
        self.bases = [file.start_offset for file in found]

    def path(self, offset: int) -> Path:
        """The file that contains ``offset``."""
        base = offset - offset % self.size_bytes
        path = self._paths.get(base)  # building a path takes longer than reading a unit
        if path is None:
            path = self._paths[base] = self.directory / segment_name(base)
        return path

    def left(self, offset: int) -> int:
        """Bytes from ``offset`` to the end of its file."""
        return self.size_bytes - offset % self.size_bytes

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes of one file; fewer if the file is shorter or missing."""
        length = min(length, self.left(offset))
        return self._opened.read(self.path(offset), offset % self.size_bytes, length)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write into one file, and create it if it is after the last one; raises ``OSError``."""
        path, position = self.path(offset), offset % self.size_bytes
        if not self.bases or offset - position > self.bases[-1]:
            self._make(offset - position)
        with self._opened.use(path) as file:
            if not position and file.size() < self.size_bytes:  # a crash after it was created
                file.truncate(self.size_bytes)
            file.write_at(position, data)
        self._dirty.wrote(path, position, position + len(data))

    def cut(self, end: int) -> None:
        """Durably remove all bytes from ``end`` on, so that none can reappear after a crash."""
        before = len(self.bases)
        while self.bases and self.bases[-1] >= end:
            self._remove(len(self.bases) - 1)
        if len(self.bases) < before:
            self._files.sync_dir(self.directory)
        if self.bases and end < self.bases[-1] + self.size_bytes:
            self._wipe(end)

    def remove_front(self, end: int) -> int:
        """Remove files that end at or before ``end``, oldest first; returns their number.

        The last file is kept. Each removal is durable before the next, so no crash leaves a gap.
        """
        removed = 0
        while len(self.bases) > 1 and self.bases[0] + self.size_bytes <= end:
            self._remove(0)
            self._files.sync_dir(self.directory)
            removed += 1
        return removed

    def mark_unsynced(self, durable_end: int = 0) -> None:
        """Sync the files with bytes from ``durable_end`` on at the next flush.

        The process that wrote them may have died before it.
        """
        due = [base for base in self.bases if base + self.size_bytes > durable_end]
        if due:
            self._dirty.named_above(self.directory)
        for base in due:
            self._dirty.wrote(self.path(base), 0, self.size_bytes)

    def flush(self, least_pages: int) -> None:
        """Sync the files in which at least ``least_pages`` pages changed; 0 is all files."""
        self._dirty.sync(least_pages)

    def close(self) -> None:
        """Close the files, without a sync."""
        for path in list(self._paths.values()):
            self._opened.drop(path)

    def _check(self, file: SegmentFile) -> None:
        if file.start_offset % self.size_bytes or file.length not in (0, self.size_bytes):
            raise CorruptQueue(
                f"the file must have {self.size_bytes} bytes and start at a multiple of that, but "
                f"it has {file.length} bytes and starts at {file.start_offset}; correct the "
                "setting of the file size, or rebuild the queues",
                path=file.path,
            )

    def _check_neighbours(self, before: SegmentFile, behind: SegmentFile) -> None:
        expected = before.start_offset + self.size_bytes
        if behind.start_offset != expected:
            raise CorruptQueue(
                f"files are missing before this one: the next must start at {expected}, but it "
                f"starts at {behind.start_offset}; rebuild the queues",
                path=behind.path,
            )

    def _make(self, base: int) -> None:
        if not self.bases:
            self._dirty.make_dir(self.directory)
        with self._opened.use(self.path(base), create=True) as file:
            file.truncate(self.size_bytes)
        self._dirty.named(self.directory)
        self.bases.append(base)

    def _remove(self, at: int) -> None:
        path = self.path(self.bases[at])
        self._opened.drop(path)
        self._dirty.forget(path)
        with suppress(FileNotFoundError):
            self._files.unlink(path)
        self._dirty.named(self.directory)
        del self.bases[at]

    def _wipe(self, end: int) -> None:
        """Zero the bytes of the last file from ``end`` on, and sync it."""
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


@attrs.define(eq=False)
class UnitFiles(SizedFiles):
    """The files of one simple queue, by queue offset; one thread writes, any thread reads."""

    is_gapless: bool = attrs.field(default=True, init=False)
    _entries: int = attrs.field(init=False)
    _latest: tuple[int, CachedFile | None] = attrs.field(default=(0, None), init=False)

    def __attrs_post_init__(self) -> None:
        self._entries = self.size_bytes // UNIT_BYTES

    @property
    def starts(self) -> list[int]:
        """Queue offset of the first unit of each file, in order, without a gap."""
        return [base // UNIT_BYTES for base in self.bases]

    def load(self) -> None:
        """List the files; ignores those after a missing one, and notes whether there is one.

        Raises :class:`~lakelog.errors.CorruptQueue` for a wrong length or name.
        """
        found = segment_files(self.directory, self._files.list(self.directory))
        for file in found:
            self._check(file)
        starts, size = [file.start_offset for file in found], self.size_bytes
        self.bases = [each for at, each in enumerate(starts) if each == starts[0] + at * size]
        self.is_gapless = self.bases == starts

    def end(self, *, thorough: bool) -> int:
        """The queue offset after the last unit.

        :param thorough: check all files, not only the last one; physical offsets must ascend
        """
        bases = self.starts
        if not bases:
            return 0
        if thorough:
            return self._whole_end(bases[0], bases[-1] + self._entries)
        ends = ((base, self._end_in(base)) for base in reversed(bases))
        return next((end for base, end in ends if end > base), bases[0])

    def units(self, first: int, count: int) -> bytes:
        """At most ``count`` units in file format; fewer if the files end before."""
        parts = []
        while count > 0:
            part = self._read_in(first, count)
            parts.append(part)
            size = min(count, self._left(first))
            if len(part) < size * UNIT_BYTES:
                break
            first, count = first + size, count - size
        return b"".join(parts)

    def held(self, first: int) -> UnitLocation:
        """The place of the unit of queue offset ``first``; ``NOT_HELD`` without its file."""
        base, opened = self._latest
        within = first - base
        if opened is None or opened.dropped or not 0 <= within < self._entries:
            base = self.base(first)
            within, opened = first - base, self._opened.held(self.path(base * UNIT_BYTES))
            self._latest = base, opened
        if opened is None:
            return NOT_HELD
        return opened, within * UNIT_BYTES, self._entries - within

    def write_units(self, first: int, units: bytes | memoryview) -> None:
        """Write units from queue offset ``first`` on; one write for each file."""
        left = memoryview(units)
        while left:
            part = left[: self._left(first) * UNIT_BYTES]
            self.write(first * UNIT_BYTES, part)
            first, left = first + len(part) // UNIT_BYTES, left[len(part) :]

    def base(self, queue_offset: int) -> int:
        """The queue offset of the first unit in the file that contains ``queue_offset``."""
        return queue_offset - queue_offset % self._entries

    def _left(self, first: int) -> int:
        """The number of units from queue offset ``first`` to the end of its file."""
        return self._entries - first % self._entries

    def _check(self, file: SegmentFile) -> None:
        size = self.size_bytes
        if file.start_offset % size or file.length not in (0, size):
            raise CorruptQueue(
                f"the file must start at a multiple of {size} bytes (consume-queue.file_entries) "
                f"and have {size} bytes, but it has {file.length} bytes and starts at "
                f"{file.start_offset}; correct the setting, or rebuild the queues",
                path=file.path,
            )

    def _whole_end(self, at: int, end: int) -> int:
        """The queue offset after the last unit before the first missing or invalid one."""
        first, reached = at, 0
        while at < end:
            units = self._read_in(at, _LONGEST_LOOK)
            length, reached = ordered_length(units, reached)
            at += length
            if length < len(units) // UNIT_BYTES:
                # Physical offsets do not ascend: one of two neighbours is wrong. Rebuild both.
                return max(first, at - 1) if unit_at(units, length).size > 0 else at
            if not length:
                break
        return at

    def _end_in(self, base: int) -> int:
        """The queue offset after the last unit in one file."""
        at, look = base, _FIRST_LOOK
        while at < base + self._entries:
            units = self._read_in(at, look)
            length = valid_length(units)
            at += length
            if length < len(units) // UNIT_BYTES or not length:
                break
            look = min(look * 4, _LONGEST_LOOK)
        return at

    def _read_in(self, first: int, count: int) -> bytes:
        """At most ``count`` units of one file."""
        data = self.read(first * UNIT_BYTES, count * UNIT_BYTES)
        return data[: len(data) - len(data) % UNIT_BYTES]
