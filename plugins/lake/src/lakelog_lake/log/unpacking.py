"""Decompresses bodies; a body that cannot be decompressed is returned as stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lakelog.errors import CorruptRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.codec import RecordBatch


def unpacked(
    batch: RecordBatch, names: Sequence[str]
) -> tuple[pa.RecordBatch, Mapping[int, CorruptRecord]]:
    """Return the columns ``names``, and by row the errors of bodies that stay compressed."""
    from lakelog_queues.arrow import to_arrow

    try:
        return to_arrow(batch, columns=names, decompress=True), {}
    except CorruptRecord:
        bad = _packed_for_good(batch)
        return _partly_unpacked(batch, names, list(bad)), bad


def _packed_for_good(batch: RecordBatch) -> dict[int, CorruptRecord]:
    from lakelog.format.compression import decompress
    from lakelog.format.sysflag import COMPRESSED

    found = {}
    for row, message in enumerate(batch.decoded):
        if not message.sys_flag & COMPRESSED:
            continue
        try:
            decompress(message.body, message.sys_flag)
        except ValueError as error:
            found[row] = CorruptRecord(str(error), offset=message.physical_offset)
    return found


def _partly_unpacked(
    batch: RecordBatch, names: Sequence[str], packed: Sequence[int]
) -> pa.RecordBatch:
    """The columns of the batch in its order, with all bodies decompressed except ``packed``."""
    import pyarrow as pa

    from lakelog_queues.arrow import to_arrow

    rows = np.arange(len(batch))
    bad = np.isin(rows, packed)
    parts = [
        to_arrow(
            batch.take(these),
            names,
            decompress=each,
        )
        for these, each in ((~bad, True), (bad, False))
    ]
    order = np.argsort(np.concatenate([rows[~bad], rows[bad]]))
    whole = pa.Table.from_batches(parts).take(pa.array(order)).combine_chunks()
    return whole.to_batches()[0]
