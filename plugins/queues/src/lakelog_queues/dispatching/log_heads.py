"""Proves marks and units of queues by the heads of records in the log."""

from __future__ import annotations

from pathlib import Path

import attrs

from lakelog.files.filesystem import FileSystem, read_range
from lakelog.files.queue_ends import HEAD_BYTES, PLACE, RecordFingerprint
from lakelog.format.layout import segment_name
from lakelog.hooks import Context


@attrs.frozen
class LogHeads:
    """Reads heads of records from the segments; changes nothing."""

    files: FileSystem
    directory: Path
    segment_bytes: int

    @classmethod
    def of(cls, context: Context) -> LogHeads:
        """The log of a store."""
        directory = context.core.commitlog(context.path)
        return cls(context.files, directory, context.core.segment_size_bytes)

    def holds(self, mark: RecordFingerprint) -> bool:
        """Whether the log has this record at this place."""
        return self._read(mark.offset) == mark.head

    def lacks_record(self, offset: int, size: int) -> bool:
        """Whether the segment exists, but has no record of this size at ``offset``."""
        head = self._read(offset)
        if head is None:
            return False
        return len(head) < HEAD_BYTES or PLACE.unpack_from(head) != (size, offset)

    def _read(self, offset: int) -> bytes | None:
        """The head at ``offset``; ``None`` if there is no segment."""
        within = offset % self.segment_bytes
        path = self.directory / segment_name(offset - within)
        return read_range(self.files, path, within, HEAD_BYTES)
