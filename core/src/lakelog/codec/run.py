"""A run of records from bytes: Python follows the chain of lengths, NumPy checks the rest."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.checksum import CRC31_MASK, crc32
from lakelog.codec.chain import follow
from lakelog.codec.dtypes import anywhere
from lakelog.codec.losttexts import whole_texts
from lakelog.codec.recordbatch import RecordBatch
from lakelog.codec.seals import have_seals, unbroken_seals
from lakelog.codec.topictext import topics_are_text
from lakelog.layout import MAGIC_V1, MAGIC_V2
from lakelog.message import Body

_LENGTHS_BYTES: Final = 3
"""The shortest topic length and the length of the properties."""
_SHORT_BODY_BYTES: Final = 512
MAX_RECORDS: Final = 1 << 16
"""A batch holds at most this many records unless told otherwise."""

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
ShortInts = NDArray[np.int32]


def decode_run(
    data: Body,
    base_offset: int = 0,
    *,
    verify: bool = True,
    sealed: bool = False,
    max_records: int = MAX_RECORDS,
) -> RecordBatch:
    """The records that stand back to back at the start of ``data``.

    Ends, without an error, before the first bytes that are no whole record, and before the first
    record whose checks fail: compare ``end_offset`` with what was expected.

    :param base_offset: physical offset of ``data[0]``; a record that states another place than
        its own fails
    :param verify: whether checksums are computed; lengths and places are always checked
    :param sealed: whether a record without a record checksum fails, as where all were written
        with one (RocketMQ's ``forceVerifyPropCRC``)
    """
    view = memoryview(data).cast("B")
    batch = RecordBatch(view, base_offset, follow(view, max_records))
    checks = (*_CHECKS, *_CHECKSUMS) if verify else _CHECKS
    for holds in (*checks, have_seals) if sealed else checks:
        good = holds(batch)
        if not good.all():
            batch = batch[: int(good.argmin())]
    return batch


def sound_records(
    batch: RecordBatch, offsets: Ints, sizes: ShortInts, *, verify: bool = True
) -> Bools:
    """Which records of a batch are whole, and the ones that are meant.

    For records that something else pointed to, at any places of the batch's buffer.

    :param offsets: the physical offset that each has to state
    :param sizes: the length that each has to have, at least ``RECORD_MIN_BYTES``; all of it must
        stand in the buffer
    """
    good = np.asarray((batch.sizes == sizes) & (batch.physical_offsets == offsets))
    for holds in (*_SHAPES, topics_are_text, *(_CHECKSUMS if verify else ())):
        left = good.nonzero()[0]
        # What failed must not be looked at again: its lengths lead anywhere.
        some = batch if len(left) == len(batch) else _some(batch, left)
        good[left] = holds(some)
    return good


def _some(batch: RecordBatch, these: Ints) -> RecordBatch:
    return RecordBatch(batch.buffer, batch.base_offset, batch.starts[these])


# Each check reads only what those before it proved to stand inside the record.


def _are_records(batch: RecordBatch) -> Bools:
    magics = batch.magics
    return np.asarray((magics == MAGIC_V1) | (magics == MAGIC_V2))


def _hold_heads(batch: RecordBatch) -> Bools:
    return np.asarray(batch.body_positions + batch._v2 + _LENGTHS_BYTES <= batch.ends)


def _hold_bodies(batch: RecordBatch) -> Bools:
    lengths = batch.body_lengths
    ends = batch.body_positions + lengths + batch._v2 + _LENGTHS_BYTES
    return np.asarray((lengths >= 0) & (ends <= batch.ends))


def _hold_topics(batch: RecordBatch) -> Bools:
    return np.asarray(batch.property_positions <= batch.ends)


def _are_filled(batch: RecordBatch) -> Bools:
    lengths = batch.property_lengths
    return np.asarray((lengths >= 0) & (batch.property_positions + lengths == batch.ends))


def _stand_in_place(batch: RecordBatch) -> Bools:
    return np.asarray(batch.physical_offsets == batch.starts + batch.base_offset)


def _have_sound_bodies(batch: RecordBatch) -> Bools:
    found = _crcs(batch)
    crcs = np.fromiter(found, np.uint32, len(found)) & CRC31_MASK
    return np.asarray(crcs == batch.body_crcs)


def _crcs(batch: RecordBatch) -> list[int]:
    """Of every body; short ones of one length are copied at once, cheaper than a view of each."""
    length = int(batch.body_lengths[0]) if len(batch) else 0
    if 0 < length <= _SHORT_BODY_BYTES and not (batch.body_lengths != length).any():
        whole = np.dtype((np.void, length))
        return list(map(crc32, anywhere(batch.buffer, whole)[batch.body_positions].tolist()))
    view, starts = batch.buffer, batch.body_positions
    ends = (starts + batch.body_lengths).tolist()
    # a list of all views would be walked by the garbage collector, again and again
    return [crc32(view[start:end]) for start, end in zip(starts.tolist(), ends, strict=True)]


_SHAPES: Final = (_are_records, _hold_heads, _hold_bodies, _hold_topics, _are_filled)
_CHECKS: Final = (*_SHAPES, _stand_in_place, topics_are_text)
_CHECKSUMS: Final = (_have_sound_bodies, unbroken_seals, whole_texts)
