"""How far queues are durable: the head of the last record that had its units before a sync.

The head is compared with the log before the mark counts: a log that was cut, by whatever recovery,
and went on from there with other records is not the one whose units were synced.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.files.filesystem import FileSystem, unreadable
from lakelog.format.layout import segment_name

if TYPE_CHECKING:
    from lakelog.codec.recordbatch import RecordBatch
    from lakelog.interfaces import Context

HEAD_BYTES: Final = 64
"""Up to the store time: with size, body CRC, queue, queue offset and physical offset."""
_PLACE: Final = Struct(">i24xq")
"""``totalSize | ... | physicalOffset``."""


@attrs.frozen
class RecordFingerprint:
    """The first bytes of a record; all before its end was dispatched."""

    head: bytes

    @classmethod
    def of(cls, batch: RecordBatch) -> RecordFingerprint:
        """The last record of a batch."""
        start = int(batch.starts[-1])
        return cls(bytes(batch.buffer[start : start + HEAD_BYTES]))

    @property
    def offset(self) -> int:
        """Where its record starts, in bytes from the start of the log."""
        return int(_PLACE.unpack_from(self.head)[1])

    @property
    def end(self) -> int:
        """Where the next record starts."""
        return self.offset + int(_PLACE.unpack_from(self.head)[0])


@attrs.frozen
class LogHeads:
    """Heads of records, read from the segments; changes nothing."""

    files: FileSystem
    directory: Path
    segment_bytes: int

    @classmethod
    def of(cls, context: Context) -> LogHeads:
        """The log of a store."""
        directory = context.core.commitlog(context.path)
        return cls(context.files, directory, context.core.segment_size_bytes)

    def holds(self, mark: RecordFingerprint) -> bool:
        """Whether the log has this very record there."""
        return self._read(mark.offset) == mark.head

    def lacks_record(self, offset: int, size: int) -> bool:
        """Whether there is a segment, and no record of this size in it that starts there."""
        head = self._read(offset)
        if head is None:
            return False
        return len(head) < HEAD_BYTES or _PLACE.unpack_from(head) != (size, offset)

    def _read(self, offset: int) -> bytes | None:
        """The head of what starts at ``offset``; ``None`` where no segment is."""
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
