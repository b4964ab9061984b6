"""Lost text of many records at once, as :mod:`lakelog.codec.losttext` has it of one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.losttext import SECTOR_BYTES, lost_text
from lakelog.codec.recordbatch import RecordBatch


def whole_texts(batch: RecordBatch) -> NDArray[np.bool_]:
    """For each record of a batch, whether no lost sector took some of its text.

    Looks at the last byte of the text in each sector; what is not zero there was not lost. Where a
    record stands in the log is what it says itself: that has to be checked before.
    """
    good = np.ones(len(batch), np.bool_)
    for at in _doubtful(batch).nonzero()[0].tolist():
        start, end = int(batch.starts[at]), int(batch.ends[at])
        good[at] = not lost_text(
            batch.buffer[start:end],
            int(batch.topic_positions[at]) - start,
            int(batch.property_positions[at]) - start,
            int(batch.physical_offsets[at]),
        )
    return good


def _doubtful(batch: RecordBatch) -> NDArray[np.bool_]:
    """Records with a zero where the text, or its part in a sector, ends; or with much of it."""
    octets, text_ends = batch.octets, batch.property_positions - 2
    # without properties, the zeros of their length end a record, and are no text
    ends = np.where(batch.property_lengths > 0, batch.ends, text_ends)
    moved = batch.physical_offsets - batch.starts
    text_at = batch.topic_positions + moved
    border = (text_at // SECTOR_BYTES + 1) * SECTOR_BYTES
    border = np.minimum(border - moved, ends)
    several = ends - border > SECTOR_BYTES
    return np.asarray((octets[ends - 1] == 0) | (octets[border - 1] == 0) | several)
