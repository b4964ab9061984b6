"""Many records from bytes: a run of them, or those that something pointed to."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.accelerate import current
from lakelog.codec.frame import Frame, read_frame, verify_checksums, verify_place
from lakelog.codec.recordbatch import RecordBatch
from lakelog.codec.recordcrc import is_sealed
from lakelog.errors import CorruptRecord
from lakelog.message import Body

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
    accelerator = current()
    if accelerator is not None:
        columns = accelerator.read_run(
            view, base_offset, verify=verify, sealed=sealed, max_records=max_records
        )
        if columns is not None:
            return RecordBatch.of_columns(view, base_offset, columns)
    starts: list[int] = []
    at = 0
    while len(starts) < max_records:
        frame = _frame(view, at, len(view), base_offset + at, verify=verify, sealed=sealed)
        if frame is None:
            break
        starts.append(at)
        at += frame.size
    return RecordBatch(view, base_offset, np.array(starts, np.int64))


def sound_records(
    batch: RecordBatch, offsets: Ints, sizes: ShortInts, *, verify: bool = True
) -> tuple[Bools, RecordBatch]:
    """Which records of a batch are whole, and the ones that are meant; and the batch of these.

    For records that something else pointed to, at any places of the batch's buffer.

    :param offsets: the physical offset that each has to state
    :param sizes: the length that each has to have, at least ``RECORD_MIN_BYTES``; all of it must
        stand in the buffer
    """
    view, starts = batch.buffer, batch.starts
    accelerator = current()
    if accelerator is not None:
        found = accelerator.sound_records(view, starts, offsets, sizes, verify=verify)
        if found is not None:
            whole, columns = found
            some = RecordBatch.of_columns(view, batch.base_offset, columns, batch.decoder)
            return np.frombuffer(whole, np.bool_), some
    places = zip(starts.tolist(), offsets.tolist(), sizes.tolist(), strict=True)
    good = np.zeros(len(batch), np.bool_)
    for index, (start, offset, size) in enumerate(places):
        frame = _frame(view, start, start + size, offset, verify=verify, sealed=False)
        good[index] = frame is not None and frame.size == size
    return good, batch.take(good)


def _frame(
    view: memoryview, start: int, end: int, offset: int, *, verify: bool, sealed: bool
) -> Frame | None:
    """The frame of the record at ``view[start:end]``, if its checks hold."""
    try:
        frame = read_frame(view, start, end, offset)
        verify_place(view, frame, offset)
        if verify:
            verify_checksums(view, frame, offset)
    except CorruptRecord:
        return None
    has_seal = not sealed or is_sealed(view[frame.properties_at : start + frame.size])
    return frame if has_seal else None
