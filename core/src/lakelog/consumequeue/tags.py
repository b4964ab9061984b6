"""The tags code of each record of a batch, found without taking property strings apart.

Of a name that repeats, the last value counts; like RocketMQ, an empty value never counts.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.dtypes import anywhere
from lakelog.codec.recordbatch import RecordBatch
from lakelog.consumequeue.javahash import hashes
from lakelog.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

_NAME: Final = b"TAGS"
_WORD: Final = np.dtype("<u4")
_NAME_AS_WORD: Final = int.from_bytes(_NAME, "little")
_NAME_ENDS: Final = NAME_VALUE_SEPARATOR[0]
_VALUE_ENDS: Final = PROPERTY_SEPARATOR[0]

Longs = NDArray[np.int64]


def tags_codes(batch: RecordBatch) -> Longs:
    """``int64``: Java's hash of the property ``TAGS`` of each record; 0 where there is none."""
    codes = np.zeros(len(batch), np.int64)
    records, starts = _values(batch)
    if len(records):
        ends = _ends(
            batch.octets, starts, (batch.property_positions + batch.property_lengths)[records]
        )
        filled = ends > starts
        records, starts, ends = records[filled], starts[filled], ends[filled]
        last = np.flatnonzero(np.append(records[1:] != records[:-1], True)[: len(records)])
        codes[records[last]] = hashes(batch.octets, starts[last], ends[last])
    return codes


def _values(batch: RecordBatch) -> tuple[Longs, Longs]:
    """Where values of ``TAGS`` start in the buffer, in order, and in which record each stands."""
    octets, first = batch.octets, int(batch.starts[0]) if len(batch) else 0
    marks = np.flatnonzero(octets[first : int(batch.ends[-1]) if len(batch) else 0] == _NAME_ENDS)
    names = marks[marks >= len(_NAME)] + (first - len(_NAME))
    names = names[anywhere(batch.buffer, _WORD)[names] == _NAME_AS_WORD]
    records = np.searchsorted(batch.starts, names, side="right") - 1
    begins = batch.property_positions[records]
    inside = (names >= begins) & (names < begins + batch.property_lengths[records])
    names, records, begins = names[inside], records[inside], begins[inside]
    whole = (names == begins) | (octets[names - 1] == _VALUE_ENDS)
    return records[whole], names[whole] + (len(_NAME) + 1)


def _ends(octets: NDArray[np.uint8], starts: Longs, limits: Longs) -> Longs:
    """Where each value ends: at the next separator, or with the property string."""
    ends = starts.copy()
    going = np.flatnonzero(ends < limits)
    while len(going):
        going = going[octets[ends[going]] != _VALUE_ENDS]
        ends[going] += 1
        going = going[ends[going] < limits[going]]
    return ends
