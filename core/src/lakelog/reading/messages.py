"""The messages of a batch that was checked: its columns first, then one object per record."""

from __future__ import annotations

from itertools import starmap

from lakelog.codec import RecordBatch
from lakelog.message import StoredMessage


def messages(batch: RecordBatch) -> list[StoredMessage]:
    """Every record of ``batch`` as a message; equal to ``batch.message`` of each, and faster."""
    if not len(batch):
        return []
    if batch.decoder is not None:
        return list(batch.decoded)
    hosts = batch.hosts()
    columns = (
        batch.topics,
        batch.queue_ids.tolist(),
        batch.queue_offsets.tolist(),
        batch.physical_offsets.tolist(),
        batch.sizes.tolist(),
        batch.magics.tolist(),
        map(bytes, batch.bodies),
        batch.body_crcs.tolist(),
        batch.property_strings,
        batch.flags.tolist(),
        batch.sys_flags.tolist(),
        batch.born_timestamps_ms.tolist(),
        [born for born, _ in hosts],
        batch.store_timestamps_ms.tolist(),
        [store for _, store in hosts],
        batch.reconsume_times.tolist(),
        batch.prepared_transaction_offsets.tolist(),
    )
    return list(starmap(StoredMessage, zip(*columns, strict=True)))
