"""The records to which the units of a queue point, as record batches in the units' order.

Units that are close together in the log are read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, TypeAlias

import attrs
import numpy as np

from lakelog.format.units import Longs, Units
from lakelog.log.reading.pieces import Piece
from lakelog_format.codec.record_batch import RecordBatch

Pieces: TypeAlias = Callable[[int, int], Iterator[Piece]]
"""Reads the log from one offset to another."""

GAP_BYTES: Final = 1 << 16
"""Largest gap between two records that is read with them."""
RUN_BYTES: Final = 16 << 20
"""Approximate size of one read."""


@attrs.frozen(eq=False)
class Queued:
    """Units, and the record of each."""

    units: Units
    records: RecordBatch


def queued_records(units: Units, pieces: Pieces) -> Iterator[Queued]:
    """Yield ``units`` with their records; units without a whole record are omitted."""
    for run in _runs(units):
        first, last = int(run.offsets[0]), int(run.offsets[-1])
        for piece in pieces(first, last + 1):
            if isinstance(piece, RecordBatch):
                yield from _met(run, piece)


def _runs(units: Units) -> Iterator[Units]:
    """Split into runs with offsets that ascend in small steps, as in an intact queue."""
    if not len(units):
        return
    steps = np.diff(units.offsets)
    cuts = np.flatnonzero((steps <= 0) | (steps - units.sizes[:-1] > GAP_BYTES)) + 1
    bounds = [0, *cuts.tolist(), len(units)]
    for start, end in pairwise(bounds):
        yield from _limited(units[start:end])


def _limited(run: Units) -> Iterator[Units]:
    """Split a run into parts of about ``RUN_BYTES``."""
    part = (run.offsets - run.offsets[0]) // RUN_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(run)]
    for start, end in pairwise(cuts):
        yield run[start:end]


def _met(run: Units, batch: RecordBatch) -> Iterator[Queued]:
    """Select the units whose records start in ``batch``."""
    places: Longs = batch.base_offset + batch.starts
    at = np.searchsorted(places, run.offsets)
    known = np.flatnonzero(places[np.minimum(at, len(places) - 1)] == run.offsets)
    if len(known):
        records = batch.take(at[known])
        yield Queued(run[known], records)
