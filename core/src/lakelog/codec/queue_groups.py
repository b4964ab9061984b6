"""Groups the records of a batch, by queue and by the length of their properties.

Prepared and rolled back messages belong to no queue. Source: RocketMQ's ``CommitLog`` and
``DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.accelerate import current
from lakelog.codec.record_batch import RecordBatch, anywhere
from lakelog.format.queue_offsets import Queue
from lakelog.format.queue_units import UNIT, RawUnits
from lakelog.format.sysflag import PREPARED

Places = NDArray[np.int64]


@attrs.frozen(eq=False)
class QueueGroup:
    """The records of one queue, in log order.

    :ivar records: ``int64``, their indices in the batch
    :ivar raw: their units in file format, with tag codes, if the accelerator built them
    :ivar first: queue offset of the first record if the offsets are known to be consecutive, else
        ``None``
    """

    queue: Queue
    records: Places
    raw: RawUnits | None = None
    first: int | None = None


def queue_groups(batch: RecordBatch) -> list[QueueGroup]:
    """The queues of a batch, in order of first appearance."""
    accelerator = current()
    if accelerator is not None:
        found = accelerator.queue_units(batch.buffer, batch.starts)
        if found is not None:
            return _groups(*found)
    places: dict[Queue, list[int]] = {}
    rows = zip(batch.topics, batch.queue_ids.tolist(), batch.sys_flags.tolist(), strict=True)
    for at, (topic, queue_id, flags) in enumerate(rows):
        if not flags & PREPARED:
            places.setdefault((topic, queue_id), []).append(at)
    return [QueueGroup(queue, np.array(found, np.int64)) for queue, found in places.items()]


def _groups(
    places: memoryview, units: memoryview, queues: list[tuple[str, int, int, int | None]]
) -> list[QueueGroup]:
    records, raw = np.frombuffer(places, np.int64), np.frombuffer(units, UNIT)
    groups, at = [], 0
    for topic, queue_id, count, first in queues:
        part = slice(at, at + count)
        groups.append(QueueGroup((topic, queue_id), records[part], raw[part], first))
        at += count
    return groups


MOST_LENGTHS: Final = 32
"""With more distinct lengths than this, searching the whole buffer is faster."""
LEAST_BYTES: Final = 1 << 16
"""With fewer bytes of records than this, searching the whole buffer is faster."""

Octets = NDArray[np.uint8]


def property_blocks(batch: RecordBatch) -> Iterator[tuple[Places, Octets]]:
    """Yield the records whose property strings share one length, and these strings as rows.

    Skips records without properties. Use it for batches for which :func:`pays` returns ``True``.
    """
    lengths = batch.property_lengths
    for length in np.flatnonzero(np.bincount(lengths)).tolist():
        if length:
            records = np.flatnonzero(lengths == length)
            strings = anywhere(batch.buffer, np.dtype((np.void, length)))
            block = strings[batch.property_positions[records]]
            yield records, block.view(np.uint8).reshape(-1, length)


def pays(batch: RecordBatch) -> bool:
    """Whether gathering the strings costs less than searching all bytes of the records."""
    if not len(batch) or int(batch.ends[-1] - batch.starts[0]) < LEAST_BYTES:
        return False
    return bool(np.count_nonzero(np.bincount(batch.property_lengths)) <= MOST_LENGTHS)
