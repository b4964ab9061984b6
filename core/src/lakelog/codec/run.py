"""Decodes many records: a consecutive run, or records at given positions."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.accelerate import current
from lakelog.codec.frame import Frame, read_frame, verify_checksums, verify_place
from lakelog.codec.record_batch import RecordBatch
from lakelog.codec.record_crc import is_sealed
from lakelog.errors import CorruptRecord
from lakelog.message import Body

MAX_RECORDS: Final = 1 << 16
"""Default limit on the number of records in a batch."""

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

    Stops without an error before the first incomplete record, or the first one that fails a check.
    Compare ``end_offset`` with the expected end.

    :param base_offset: physical offset of ``data[0]``; a record that states another offset fails
    :param verify: whether checksums are computed; lengths and offsets are always checked
    :param sealed: whether a record checksum is required (RocketMQ's ``forceVerifyPropCRC``)
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
    """Which records of a batch are whole and as expected, and the batch of these.

    For records at arbitrary positions of the buffer, found through a queue or an index.

    :param offsets: the physical offset that each record must state
    :param sizes: the length that each record must have, at least ``RECORD_MIN_BYTES``; must lie
        inside the buffer
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
    """The frame of the record at ``view[start:end]``, or ``None`` if a check fails."""
    try:
        frame = read_frame(view, start, end, offset)
        verify_place(view, frame, offset)
        if verify:
            verify_checksums(view, frame, offset)
    except CorruptRecord:
        return None
    has_seal = not sealed or is_sealed(view[frame.properties_at : start + frame.size])
    return frame if has_seal else None
