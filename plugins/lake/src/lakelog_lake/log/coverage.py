"""Checks that a task accounts for every byte of its range: as records, blank or damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lakelog.codec import RecordBatch
from lakelog.errors import CorruptRecord
from lakelog.log.reading.pieces import Blank, Damage, Piece
from lakelog_lake.log.wanted import NumberSpan


def record_batches(
    pieces: Iterable[Piece], part: NumberSpan, on_damage: Callable[[Damage], None]
) -> Iterator[RecordBatch]:
    """The records among ``pieces``, which must cover ``part``.

    A scan silently skips trailing zeros and missing segments. At the end of a log that is right;
    inside of it, it is damage.
    """
    at = part.low
    for piece in pieces:
        first, behind = edges(piece)
        if first > at:
            on_damage(_nothing(at, first))
        if isinstance(piece, Damage):
            on_damage(piece)
        elif isinstance(piece, RecordBatch):
            yield piece
        at = max(at, behind)
    if at < part.end:
        on_damage(_nothing(at, part.end))


def edges(piece: Piece) -> tuple[int, int]:
    """The start and the end offset of a piece of the log."""
    if isinstance(piece, Damage):
        return piece.offset, piece.end_offset
    if isinstance(piece, Blank):
        return piece.offset, piece.offset + piece.size
    return piece.base_offset + int(piece.starts[0]), piece.end_offset


def _nothing(offset: int, end_offset: int) -> Damage:
    what = "there are zeros or nothing where records were; was a segment deleted, moved or cut?"
    return Damage(offset, end_offset, CorruptRecord(what, offset=offset))
