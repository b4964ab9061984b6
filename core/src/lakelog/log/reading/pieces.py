"""What a scan finds between the records of a log: blanks, and damage with its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import attrs

from lakelog.errors import CorruptRecord

if TYPE_CHECKING:
    from lakelog.codec.recordbatch import RecordBatch


@attrs.frozen
class Blank:
    """The record that fills the rest of a segment: ``size`` bytes from ``offset``."""

    offset: int
    size: int


@attrs.frozen
class Damage:
    """Bytes that are no whole record.

    :ivar offset: first byte
    :ivar end_offset: behind the last one; a record, a segment or nothing follows
    :ivar path: the segment file, where it is known
    :ivar unproven: whether whole records are among them that nothing proves to belong to the log
    :ivar head: the first of the bytes, by which they are known again
    :ivar to_fill: whether the recovery that noted it was about to put records in its place
    """

    offset: int
    end_offset: int
    error: CorruptRecord
    path: Path | None = None
    unproven: bool = False
    head: bytes = attrs.field(default=b"", repr=False)
    to_fill: bool = False

    def is_at(self, data: memoryview) -> bool:
        """Whether ``data`` begins as these bytes did when they were judged."""
        return bool(self.head) and bytes(data[: len(self.head)]) == self.head

    def __str__(self) -> str:
        """What is wrong, and where."""
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.error}; passed over {self.offset} to {self.end_offset}"


Piece: TypeAlias = "RecordBatch | Blank | Damage"
