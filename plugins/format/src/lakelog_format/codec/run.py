"""Decodes a run of consecutive records."""

from __future__ import annotations

from array import array
from contextlib import suppress
from typing import Final

from lakelog_format.accelerate import current
from lakelog_format.codec.frame import checked_frame
from lakelog_format.codec.record_batch import RecordBatch
from lakelog_format.errors import CorruptRecord
from lakelog_format.message import Body

MAX_RECORDS: Final = 1 << 16
"""Default limit on the number of records in a batch."""


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
    starts = array("q")
    at = 0
    with suppress(CorruptRecord):
        while len(starts) < max_records:
            place = at, len(view), base_offset + at
            frame = checked_frame(view, *place, verify=verify, sealed=sealed)
            starts.append(at)
            at += frame.size
    return RecordBatch(view, base_offset, memoryview(starts))
