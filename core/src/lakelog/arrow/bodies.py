"""Bodies as a column, as stored or unpacked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.arrow.slices import slices
from lakelog.codec import RecordBatch
from lakelog.compression import decompress
from lakelog.errors import CorruptRecord
from lakelog.sysflag import COMPRESSED


def bodies(batch: RecordBatch, unpack: bool) -> pa.BinaryArray:
    """The bodies; with ``unpack`` those that are compressed are decompressed."""
    stored = slices(batch.buffer, batch.body_positions, batch.body_lengths)
    packed = (batch.sys_flags & COMPRESSED).astype(np.bool_) if unpack else None
    if packed is None or not packed.any():
        return stored
    unpacked = pa.array(
        [_unpacked(batch, row) for row in np.flatnonzero(packed).tolist()], pa.binary()
    )
    return pc.replace_with_mask(stored, pa.array(packed), unpacked)


def _unpacked(batch: RecordBatch, row: int) -> bytes:
    at = int(batch.body_positions[row])
    body = bytes(batch.buffer[at : at + int(batch.body_lengths[row])])
    try:
        return decompress(body, int(batch.sys_flags[row]))
    except ValueError as error:
        raise CorruptRecord(str(error), offset=int(batch.physical_offsets[row])) from error
