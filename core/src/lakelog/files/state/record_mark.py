"""A mark of how far queues are durable: the head of the last record with units before a sync.

The head is compared with the log before the mark is used. If the log was cut and continued with
other records, the heads differ, and the mark does not apply.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.files.filesystem import FileSystem, unreadable
from lakelog.format.layout import segment_name

if TYPE_CHECKING:
    from lakelog.codec.record_batch import RecordBatch
    from lakelog.interfaces import Context

HEAD_BYTES: Final = 64
"""Covers size, body CRC, queue, queue offset, physical offset and store time."""
_PLACE: Final = Struct(">i24xq")
"""``totalSize | ... | physicalOffset``."""


@attrs.frozen
class RecordFingerprint:
    """The first bytes of a record; everything before its end was dispatched."""

    head: bytes

    @classmethod
    def of(cls, batch: RecordBatch) -> RecordFingerprint:
        """The last record of a batch."""
        start = int(batch.starts[-1])
        return cls(bytes(batch.buffer[start : start + HEAD_BYTES]))

    @property
    def offset(self) -> int:
        """Start of the record, in bytes from the start of the log."""
        return int(_PLACE.unpack_from(self.head)[1])

    @property
    def end(self) -> int:
        """Where the next record starts."""
        return self.offset + int(_PLACE.unpack_from(self.head)[0])


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
        return len(head) < HEAD_BYTES or _PLACE.unpack_from(head) != (size, offset)

    def _read(self, offset: int) -> bytes | None:
        """The head at ``offset``; ``None`` if there is no segment."""
        within = offset % self.segment_bytes
        path = self.directory / segment_name(offset - within)
        try:
            file = self.files.open(path)
            try:
                return file.read_at(within, HEAD_BYTES)
            finally:
                file.close()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(path, error) from error
