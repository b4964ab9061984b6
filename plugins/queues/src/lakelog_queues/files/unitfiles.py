"""The files of one simple queue: units by their queue offset, in files of equal size."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lakelog.errors import CorruptQueue
from lakelog.files.filesystem import FileSystem
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog_queues.files.batchfolder import SizedFiles
from lakelog_queues.files.openfiles import NOT_HELD, CachedFile, DirtyFiles, OpenFiles, UnitLocation
from lakelog_queues.units.simpleunits import UNIT_BYTES, ordered_length, unit_at, valid_length

_FIRST_LOOK: Final = 512
_LONGEST_LOOK: Final = 1 << 16


class UnitFiles:
    """The files in one directory; one thread writes, any thread reads."""

    __slots__ = ("_entries", "_files", "_folder", "_latest", "_opened")

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
        self._entries = entries
        self._folder = SizedFiles(
            *(files, directory, entries * UNIT_BYTES), read_only=False, opened=opened, dirty=dirty
        )
        self._latest: tuple[int, CachedFile | None] = 0, None

    @property
    def bases(self) -> list[int]:
        """Queue offset of the first unit of each file, in order, without a gap."""
        return [base // UNIT_BYTES for base in self._folder.bases]

    def load(self) -> bool:
        """List the files; returns whether none is missing between them.

        Files after a gap are ignored. Raises :class:`~lakelog.errors.CorruptQueue` for a wrong
        length or name.
        """
        folder = self._folder
        found = segment_files(folder.directory, self._files.list(folder.directory))
        bases = [self._checked(file) for file in found]
        folder.bases = [
            base for at, base in enumerate(bases) if base == bases[0] + at * folder.size_bytes
        ]
        return len(folder.bases) == len(bases)

    def end(self, *, thorough: bool) -> int:
        """The queue offset after the last unit.

        :param thorough: check all files, not only the last one; physical offsets must ascend
        """
        bases = self.bases
        if not bases:
            return 0
        if thorough:
            return self._whole_end(bases[0], bases[-1] + self._entries)
        ends = ((base, self._end_in(base)) for base in reversed(bases))
        return next((end for base, end in ends if end > base), bases[0])

    def read(self, first: int, count: int) -> bytes:
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
            within, opened = first - base, self._opened.held(self._folder.path(base * UNIT_BYTES))
            self._latest = base, opened
        if opened is None:
            return NOT_HELD
        return opened, within * UNIT_BYTES, self._entries - within

    def write(self, first: int, units: bytes | memoryview) -> None:
        """Write units from queue offset ``first`` on; one write for each file."""
        left = memoryview(units)
        while left:
            part = left[: self._left(first) * UNIT_BYTES]
            self._folder.write(first * UNIT_BYTES, part)
            first, left = first + len(part) // UNIT_BYTES, left[len(part) :]

    def cut(self, end: int) -> None:
        """Durably remove units from queue offset ``end`` on, so that none can reappear."""
        self._folder.cut(end * UNIT_BYTES)

    def remove_before(self, first: int) -> int:
        """Remove the files whose units are all before queue offset ``first``, oldest first.

        The last file is kept. Returns the number of removed files.
        """
        return self._folder.remove_front(first * UNIT_BYTES)

    def mark_unsynced(self, durable_end: int) -> None:
        """Sync the files that hold units from queue offset ``durable_end`` on at the next flush."""
        self._folder.mark_unsynced(durable_end * UNIT_BYTES)

    def close(self) -> None:
        """Close the files, as other files may get their names later."""
        self._folder.close()

    def base(self, queue_offset: int) -> int:
        """The queue offset of the first unit in the file that contains ``queue_offset``."""
        return queue_offset - queue_offset % self._entries

    def _left(self, first: int) -> int:
        """The number of units from queue offset ``first`` to the end of its file."""
        return self._entries - first % self._entries

    def _checked(self, file: SegmentFile) -> int:
        """The offset of the first byte of ``file``; raises ``CorruptQueue``."""
        size = self._folder.size_bytes
        if file.start_offset % size or file.length not in (0, size):
            raise CorruptQueue(
                f"the file must start at a multiple of {size} bytes (consume-queue.file_entries) "
                f"and have {size} bytes, but it has {file.length} bytes and starts at "
                f"{file.start_offset}; correct the setting, or rebuild the queues",
                path=file.path,
            )
        return file.start_offset

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
        data = self._folder.read(first * UNIT_BYTES, count * UNIT_BYTES)
        return data[: len(data) - len(data) % UNIT_BYTES]
