"""The column of bodies, as stored or decompressed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lakelog.codec import RecordBatch
from lakelog.errors import CorruptRecord
from lakelog.format.compression import decompress
from lakelog.format.sysflag import COMPRESSED
from lakelog_queues.arrow.slices import slices


def bodies(batch: RecordBatch, unpack: bool) -> pa.BinaryArray:
    """The bodies as ``binary``; with ``unpack``, compressed ones are decompressed.

    Raises :class:`~lakelog.errors.CorruptRecord` for a body that cannot be decompressed.
    """
    if batch.decoder is not None:
        stored = pa.array([each.body for each in batch.decoded], pa.binary())
    elif batch.packed_bodies is not None:
        octets, offsets = map(pa.py_buffer, batch.packed_bodies)
        stored = pa.BinaryArray.from_buffers(pa.binary(), len(batch), [None, offsets, octets])
    else:
        stored = slices(batch.buffer, batch.body_positions, batch.body_lengths)
    packed = (sys_flags(batch) & COMPRESSED).astype(np.bool_) if unpack else None
    if packed is None or not packed.any():
        return stored
    unpacked = pa.array(
        [_unpacked(batch, stored[row], row) for row in np.flatnonzero(packed).tolist()],
        pa.binary(),
    )
    return pc.replace_with_mask(stored, pa.array(packed), unpacked)


def sys_flags(batch: RecordBatch) -> NDArray[np.int32]:
    """The system flags, ``int32``; with a decoder, those of the decoded bodies."""
    if batch.decoder is None:
        return batch.sys_flags
    return np.array([each.sys_flag for each in batch.decoded], np.int32)


def _unpacked(batch: RecordBatch, body: pa.BinaryScalar, row: int) -> bytes:
    try:
        return decompress(body.as_py(), int(sys_flags(batch)[row]))
    except ValueError as error:
        raise CorruptRecord(str(error), offset=int(batch.physical_offsets[row])) from error
