"""The columns of a message in a table; (store, topic, queue_id, queue_offset) is the key.

Bodies are decompressed; one that cannot be decompressed is returned as stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from lakelog.arrow import to_arrow
from lakelog.errors import CorruptRecord
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.identity import read_identity
from lakelog.format import compression, layout, record_batch

TYPES: Final = {
    "store": "string",
    "topic": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "physical_offset": "bigint",
    "store_size": "int",
    "message_id": "string",
    "unique_key": "string",
    "tags": "string",
    "keys": "array<string>",
    "properties": "map<string,string>",
    "body": "binary",
    "body_crc": "int",
    "flag": "int",
    "sys_flag": "int",
    "transaction_type": "string",
    "born_timestamp": "timestamp",
    "born_host": "string",
    "store_timestamp": "timestamp",
    "store_host": "string",
    "reconsume_times": "int",
    "prepared_transaction_offset": "bigint",
}
"""The Spark type of each column, in column order."""
NAMES: Final = tuple(TYPES)

ERROR: Final = "error"
"""The column of errors, which is last, and present with ``corrupt=collect`` only."""


def store_name(path: Path) -> str:
    """The value of the column ``store``: the store's UUID, or without one the folder's name."""
    identity = read_identity(RealFileSystem(), path)
    return path.resolve().name if identity is None else identity.uuid


def unpacked(
    batch: record_batch.RecordBatch, names: Sequence[str]
) -> tuple[pa.RecordBatch, Mapping[int, CorruptRecord]]:
    """Return the columns ``names``, and by row the errors of bodies that stay compressed."""
    try:
        return to_arrow(batch, columns=names, decompress=True), {}
    except CorruptRecord:
        bad = _packed_for_good(batch)
        return _partly_unpacked(batch, names, list(bad)), bad


def _packed_for_good(batch: record_batch.RecordBatch) -> dict[int, CorruptRecord]:

    found = {}
    for row, message in enumerate(batch.decoded):
        if not message.sys_flag & layout.COMPRESSED:
            continue
        try:
            compression.decompress(message.body, message.sys_flag)
        except ValueError as error:
            found[row] = CorruptRecord(str(error), offset=message.physical_offset)
    return found


def _partly_unpacked(
    batch: record_batch.RecordBatch, names: Sequence[str], packed: Sequence[int]
) -> pa.RecordBatch:
    """The columns of the batch in its order, with all bodies decompressed except ``packed``."""
    rows = np.arange(len(batch))
    bad = np.isin(rows, packed)
    parts = [
        to_arrow(batch.take(these), names, decompress=each)
        for these, each in ((~bad, True), (bad, False))
    ]
    order = np.argsort(np.concatenate([rows[~bad], rows[bad]]))
    whole = pa.Table.from_batches(parts).take(pa.array(order)).combine_chunks()
    return whole.to_batches()[0]
