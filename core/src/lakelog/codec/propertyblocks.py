"""The property strings of many records, gathered from between the bodies to be searched at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.dtypes import anywhere
from lakelog.codec.recordbatch import RecordBatch

MOST_LENGTHS: Final = 32
"""Strings of more lengths than this are found sooner by a search of everything."""
LEAST_BYTES: Final = 1 << 16
"""So are those of fewer bytes of records than this."""

Places = NDArray[np.int64]
Octets = NDArray[np.uint8]


def property_blocks(batch: RecordBatch) -> Iterator[tuple[Places, Octets]]:
    """Records whose property strings have one length, and these strings, a row each.

    Records without properties are in none. For batches that :func:`pays` says yes to.
    """
    lengths = batch.property_lengths
    for length in np.flatnonzero(np.bincount(lengths)).tolist():
        if length:
            records = np.flatnonzero(lengths == length)
            strings = anywhere(batch.buffer, np.dtype((np.void, length)))
            block = strings[batch.property_positions[records]]
            yield records, block.view(np.uint8).reshape(-1, length)


def pays(batch: RecordBatch) -> bool:
    """Whether to gather the strings costs less than to search all bytes of the records."""
    if not len(batch) or int(batch.ends[-1] - batch.starts[0]) < LEAST_BYTES:
        return False
    return bool(np.count_nonzero(np.bincount(batch.property_lengths)) <= MOST_LENGTHS)
