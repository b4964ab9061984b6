"""Reads one range of the log as one run of records, whatever windows it was read in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.codec import RecordBatch


@attrs.frozen
class Span:
    """Records that start from ``start`` up to ``end``: offsets in the log, in bytes."""

    start: int
    end: int


def one_batch(batches: Iterator[RecordBatch], span: Span) -> RecordBatch | None:
    """All records as one batch, over one copy of their bytes; ``None`` if there are none.

    Each window is copied when it comes and then let go: its memory serves for the next one, and
    the pages of a range are touched once.
    """
    from lakelog.codec import RecordBatch

    whole = np.empty(span.end - span.start, np.uint8)
    starts: list[NDArray[np.int64]] = []
    base = at = 0
    decoder = None
    for batch in batches:
        decoder = batch.decoder
        first, behind = int(batch.starts[0]), int(batch.ends[-1])
        if not starts:
            base = batch.base_offset + first
        size = behind - first
        if at + size > len(whole):
            whole = np.concatenate([whole[:at], np.empty(2 * (at + size), np.uint8)])
        whole[at : at + size] = np.frombuffer(batch.buffer, np.uint8)[first:behind]
        starts.append(batch.starts + (at - first))
        at += size
    return RecordBatch(whole[:at].data, base, np.concatenate(starts), decoder) if starts else None
