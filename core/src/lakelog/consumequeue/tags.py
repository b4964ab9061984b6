"""The tags code of each record of a batch, found without taking property strings apart.

Of a name that repeats, the last value counts; like RocketMQ, an empty value never counts.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.dtypes import anywhere
from lakelog.codec.propertyblocks import pays, property_blocks
from lakelog.codec.recordbatch import RecordBatch
from lakelog.consumequeue.javahash import hashes
from lakelog.consumequeue.tagsalike import TAGS, alike_codes
from lakelog.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

_WORD: Final = np.dtype("<u4")
_NAME_AS_WORD: Final = int.from_bytes(TAGS, "little")
_NAME_ENDS: Final = NAME_VALUE_SEPARATOR[0]
_VALUE_ENDS: Final = PROPERTY_SEPARATOR[0]

Longs = NDArray[np.int64]
Octets = NDArray[np.uint8]


def tags_codes(batch: RecordBatch) -> Longs:
    """``int64``: Java's hash of the property ``TAGS`` of each record; 0 where there is none."""
    codes = np.zeros(len(batch), np.int64)
    if not pays(batch):
        _fill(codes, batch, *_names_anywhere(batch))
        return codes
    for records, block in property_blocks(batch):
        alike = alike_codes(block)
        if alike is not None:
            codes[records] = alike
        else:
            _fill(codes, batch, *_names_in_block(batch, records, block))
    return codes


def _fill(codes: Longs, batch: RecordBatch, records: Longs, names: Longs) -> None:
    """Write the codes of records that have the property; ``names`` are places in the buffer."""
    records, starts = _values(batch, records, names)
    if len(records):
        ends = _ends(
            batch.octets, starts, (batch.property_positions + batch.property_lengths)[records]
        )
        filled = ends > starts
        records, starts, ends = records[filled], starts[filled], ends[filled]
        last = np.flatnonzero(np.append(records[1:] != records[:-1], True)[: len(records)])
        codes[records[last]] = hashes(batch.octets, starts[last], ends[last])


def _values(batch: RecordBatch, records: Longs, names: Longs) -> tuple[Longs, Longs]:
    """In which records values of ``TAGS`` stand, and where in the buffer each starts."""
    octets = batch.octets
    named = anywhere(batch.buffer, _WORD)[names] == _NAME_AS_WORD
    records, names = records[named], names[named]
    begins = batch.property_positions[records]
    inside = (names >= begins) & (names < begins + batch.property_lengths[records])
    names, records, begins = names[inside], records[inside], begins[inside]
    whole = (names == begins) | (octets[names - 1] == _VALUE_ENDS)
    return records[whole], names[whole] + (len(TAGS) + 1)


def _names_in_block(batch: RecordBatch, records: Longs, block: Octets) -> tuple[Longs, Longs]:
    """The record of each name that ends in a property string, and where its last bytes start."""
    rows, columns = np.divmod(np.flatnonzero(block == _NAME_ENDS), block.shape[1])
    records = records[rows]
    return records, batch.property_positions[records] + columns - len(TAGS)


def _names_anywhere(batch: RecordBatch) -> tuple[Longs, Longs]:
    """The same of all bytes of the records; what stands in a body is among it."""
    octets, first = batch.octets, int(batch.starts[0]) if len(batch) else 0
    marks = np.flatnonzero(octets[first : int(batch.ends[-1]) if len(batch) else 0] == _NAME_ENDS)
    names = marks[marks >= len(TAGS)] + (first - len(TAGS))
    return np.searchsorted(batch.starts, names, side="right") - 1, names


def _ends(octets: NDArray[np.uint8], starts: Longs, limits: Longs) -> Longs:
    """Where each value ends: at the next separator, or with the property string."""
    ends = starts.copy()
    going = np.flatnonzero(ends < limits)
    while len(going):
        going = going[octets[ends[going]] != _VALUE_ENDS]
        ends[going] += 1
        going = going[ends[going] < limits[going]]
    return ends
