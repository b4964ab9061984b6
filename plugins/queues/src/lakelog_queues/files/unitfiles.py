"""The files of one simple queue: units by their queue offset, in files of equal size.

A file is named by the offset in bytes of its first unit, in 20 digits. It is sparse, and has its
full length from the start. Only ``pwrite`` writes to it, so that a full disk is an error, and not a
signal as with a memory map.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from lakelog.errors import CorruptQueue
from lakelog.files.filesystem import FileSystem
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format.layout import segment_name
from lakelog_queues.files.openfiles import NOT_HELD, CachedFile, DirtyFiles, OpenFiles, UnitLocation
from lakelog_queues.units.simpleunits import UNIT_BYTES, ordered_length, unit_at, valid_length

_FIRST_LOOK: Final = 512
_LONGEST_LOOK: Final = 1 << 16


class UnitFiles:
    """The files in one directory; one thread writes, any thread reads.

    :ivar bases: queue offset of the first unit of each file, in order, without a gap
    """

    __slots__ = (
        *("_dirty", "_entries", "_files", "_latest", "_opened", "_paths"),
        *("bases", "directory"),
    )

    def __init__(
        self,
        files: FileSystem,
        opened: OpenFiles,
        dirty: DirtyFiles,
        directory: Path,
        entries: int,
    ) -> None:
        self._files = files
        self._opened = opened
        self._dirty = dirty
        self._entries = entries
        self._paths: dict[int, Path] = {}
        self._latest: tuple[int, CachedFile | None] = 0, None
        self.directory = directory
        self.bases: list[int] = []

    def load(self) -> bool:
        """List the files; returns whether none is missing between them.

        Files after a gap are ignored. Raises :class:`~lakelog.errors.CorruptQueue` for a wrong
        length or name.
        """
        found = segment_files(self.directory, self._files.list(self.directory))
        bases = [self._base_of(file) for file in found]
        whole = [base for at, base in enumerate(bases) if base == bases[0] + at * self._entries]
        self.bases = whole
        return len(whole) == len(bases)

    def end(self, *, thorough: bool) -> int:
        """The queue offset after the last unit.

        :param thorough: check all files, not only the last one; physical offsets must ascend
        """
        if not self.bases:
            return 0
        if thorough:
            return self._whole_end()
        for base in reversed(self.bases):
            end = self._end_in(base)
            if end > base:
                return end
        return self.bases[0]

    def read(self, first: int, count: int) -> bytes:
        """At most ``count`` units in file format; fewer if the files end before."""
        parts = []
        while count > 0:
            base = self.base(first)
            size = min(count, base + self._entries - first)
            part = self._read_in(base, first, size)
            parts.append(part)
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
            within, opened = first - base, self._opened.held(self.path(base))
            self._latest = base, opened
        if opened is None:
            return NOT_HELD
        return opened, within * UNIT_BYTES, self._entries - within

    def write(self, first: int, units: bytes | memoryview) -> None:
        """Write units from queue offset ``first`` on; one write for each file."""
        left = memoryview(units)
        while left:
            base = self.base(first)
            part = left[: (base + self._entries - first) * UNIT_BYTES]
            self._write_in(base, first, part)
            first, left = first + len(part) // UNIT_BYTES, left[len(part) :]

    def cut(self, end: int) -> None:
        """Durably remove units from queue offset ``end`` on, so that none can reappear."""
        gone = [base for base in reversed(self.bases) if base >= end]
        for base in gone:
            self._remove(base)
        if gone:
            self._files.sync_dir(self.directory)
        if self.bases:
            self._wipe(self.bases[-1], end)

    def remove_before(self, first: int) -> int:
        """Remove the files whose units are all before queue offset ``first``, oldest first.

        Each removal is durable before the next, so no crash leaves a gap. The last file is kept.
        Returns the number of removed files.
        """
        removed = 0
        while len(self.bases) > 1 and self.bases[0] + self._entries <= first:
            self._remove(self.bases[0])
            self._files.sync_dir(self.directory)
            removed += 1
        return removed

    def mark_unsynced(self, durable_end: int = 0) -> None:
        """Sync the files that hold units from queue offset ``durable_end`` on at the next flush."""
        due = [base for base in self.bases if base + self._entries > durable_end]
        if due:
            self._dirty.named_above(self.directory)
        for base in due:
            self._dirty.wrote(self.path(base), 0, self._entries * UNIT_BYTES)

    def close(self) -> None:
        """Close the files, as other files may get their names later."""
        for path in list(self._paths.values()):
            self._opened.drop(path)

    def base(self, queue_offset: int) -> int:
        """The queue offset of the first unit in the file that contains ``queue_offset``."""
        return queue_offset - queue_offset % self._entries

    def path(self, base: int) -> Path:
        """The file whose first unit has queue offset ``base``."""
        path = self._paths.get(base)
        if path is None:
            path = self._paths[base] = self.directory / segment_name(base * UNIT_BYTES)
        return path

    def _base_of(self, file: SegmentFile) -> int:
        size = self._entries * UNIT_BYTES
        if file.start_offset % size or file.length not in (0, size):
            raise CorruptQueue(
                f"the file must start at a multiple of {size} bytes (consume-queue.file_entries) "
                f"and have {size} bytes, but it has {file.length} bytes and starts at "
                f"{file.start_offset}; correct the setting, or rebuild the queues",
                path=file.path,
            )
        return file.start_offset // UNIT_BYTES

    def _whole_end(self) -> int:
        """The queue offset after the last unit before the first missing or invalid one."""
        at, reached, end = self.bases[0], 0, self.bases[-1] + self._entries
        while at < end:
            base = self.base(at)
            units = self._read_in(base, at, min(_LONGEST_LOOK, base + self._entries - at))
            length, reached = ordered_length(units, reached)
            at += length
            if length < len(units) // UNIT_BYTES:
                # Physical offsets do not ascend: one of two neighbours is wrong. Rebuild both.
                return max(self.bases[0], at - 1) if unit_at(units, length).size > 0 else at
            if not length:
                break
        return at

    def _end_in(self, base: int) -> int:
        at, look = base, _FIRST_LOOK
        while at < base + self._entries:
            units = self._read_in(base, at, min(look, base + self._entries - at))
            length = valid_length(units)
            at += length
            if length < len(units) // UNIT_BYTES or not length:
                break
            look = min(look * 4, _LONGEST_LOOK)
        return at

    def _read_in(self, base: int, first: int, count: int) -> bytes:
        position = (first - base) * UNIT_BYTES
        data = self._opened.read(self.path(base), position, count * UNIT_BYTES)
        return data[: len(data) - len(data) % UNIT_BYTES]

    def _write_in(self, base: int, first: int, units: memoryview) -> None:
        path = self.path(base)
        if base not in self.bases[-2:]:
            self._make(base)
        with self._opened.use(path) as file:
            begin = (first - base) * UNIT_BYTES
            if not begin and file.size() < self._entries * UNIT_BYTES:
                file.truncate(self._entries * UNIT_BYTES)
            file.write_at(begin, units)
        self._dirty.wrote(path, begin, begin + len(units))

    def _make(self, base: int) -> None:
        if not self.bases:
            self._dirty.make_dir(self.directory)
        with self._opened.use(self.path(base), create=True) as file:
            file.truncate(self._entries * UNIT_BYTES)
        self._dirty.named(self.directory)
        self.bases.append(base)

    def _remove(self, base: int) -> None:
        path = self.path(base)
        self._opened.drop(path)
        self._dirty.forget(path)
        self.bases.remove(base)
        self._dirty.named(self.directory)
        try:
            self._files.unlink(path)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise

    def _wipe(self, base: int, end: int) -> None:
        """Zero the units in one file from queue offset ``end`` on, and sync it."""
        with self._opened.use(self.path(base)) as file:
            size, wiped = file.size(), False
            position = file.next_data((end - base) * UNIT_BYTES)
            while position is not None and position < size:
                data = file.read_at(position, min(_LONGEST_LOOK, size - position))
                if data != bytes(len(data)):
                    file.write_at(position, bytes(len(data)))
                    wiped = True
                position = file.next_data(position + len(data))
            if wiped:
                file.sync()
