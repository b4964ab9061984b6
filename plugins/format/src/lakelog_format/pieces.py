"""The pieces that a scan yields between runs of records: blanks, and damage with its range."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import attrs

from lakelog_format.errors import CorruptRecord

if TYPE_CHECKING:
    from lakelog_format.codec.record_batch import RecordBatch


@attrs.frozen
class Blank:
    """The record that fills the rest of a segment: ``size`` bytes at ``offset``."""

    offset: int
    size: int

    @property
    def end_offset(self) -> int:
        """Offset behind the last byte."""
        return self.offset + self.size


@attrs.frozen
class Damage:
    """A range of bytes that is not a whole record.

    :ivar offset: offset of the first byte, in bytes from the start of the log
    :ivar end_offset: offset behind the last byte; a record, a segment or nothing follows
    :ivar error: the failed check of the first record in the range
    :ivar path: the segment file, if known
    :ivar unproven: whether it contains whole records not proved to belong to the log
    :ivar head: its first bytes, to detect a change
    :ivar to_fill: whether the recovery that noted it planned to fill it with records
    """

    offset: int
    end_offset: int
    error: CorruptRecord
    path: Path | None = None
    unproven: bool = False
    head: bytes = attrs.field(default=b"", repr=False)
    to_fill: bool = False

    def is_at(self, data: memoryview) -> bool:
        """Whether ``data`` still begins with the same bytes."""
        return bool(self.head) and bytes(data[: len(self.head)]) == self.head

    def __str__(self) -> str:
        """The problem and its place."""
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.error}; skipped {self.offset} to {self.end_offset}"


Piece: TypeAlias = "RecordBatch | Blank | Damage"
