"""Reads one range of the log as one run of records, whatever windows it was read in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs
import numpy as np

from lakelog.pieces import Blank, Damage, Piece

if TYPE_CHECKING:
    from lakelog.codec import RecordBatch


@attrs.frozen
class Span:
    """Records that start from ``start`` up to ``end``: offsets in the log, in bytes."""

    start: int
    end: int


def edges(piece: Piece) -> tuple[int, int]:
    """From where to where a piece of the log stands."""
    if isinstance(piece, Damage):
        return piece.offset, piece.end_offset
    if isinstance(piece, Blank):
        return piece.offset, piece.offset + piece.size
    return piece.base_offset + int(piece.starts[0]), piece.end_offset


def one_batch(batches: Iterator[RecordBatch]) -> RecordBatch | None:
    """All records as one batch, over one copy of their bytes; ``None`` if there are none."""
    from lakelog.codec import RecordBatch

    found = list(batches)
    if len(found) <= 1:
        return found[0] if found else None
    parts, starts, at = [], [], 0
    for batch in found:
        first, behind = int(batch.starts[0]), int(batch.ends[-1])
        parts.append(batch.buffer[first:behind])
        starts.append(batch.starts + (at - first))
        at += behind - first
    base = found[0].base_offset + int(found[0].starts[0])
    return RecordBatch(memoryview(b"".join(parts)), base, np.concatenate(starts))
