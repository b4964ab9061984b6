"""Property strings of many records, gathered into arrays so that one search covers them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.dtypes import anywhere
from lakelog.codec.recordbatch import RecordBatch

MOST_LENGTHS: Final = 32
"""With more distinct lengths than this, searching the whole buffer is faster."""
LEAST_BYTES: Final = 1 << 16
"""With fewer bytes of records than this, searching the whole buffer is faster."""

Places = NDArray[np.int64]
Octets = NDArray[np.uint8]


def property_blocks(batch: RecordBatch) -> Iterator[tuple[Places, Octets]]:
    """Yield the records whose property strings share one length, and these strings as rows.

    Skips records without properties. Use it for batches for which :func:`pays` returns ``True``.
    """
    lengths = batch.property_lengths
    for length in np.flatnonzero(np.bincount(lengths)).tolist():
        if length:
            records = np.flatnonzero(lengths == length)
            strings = anywhere(batch.buffer, np.dtype((np.void, length)))
            block = strings[batch.property_positions[records]]
            yield records, block.view(np.uint8).reshape(-1, length)


def pays(batch: RecordBatch) -> bool:
    """Whether gathering the strings costs less than searching all bytes of the records."""
    if not len(batch) or int(batch.ends[-1] - batch.starts[0]) < LEAST_BYTES:
        return False
    return bool(np.count_nonzero(np.bincount(batch.property_lengths)) <= MOST_LENGTHS)
