"""Which records of a batch each queue gets.

Prepared and rolled back messages go to no queue. Source: RocketMQ's ``CommitLog`` and
``DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue``.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.accelerate import current
from lakelog.codec.recordbatch import RecordBatch
from lakelog.format.queue_offsets import Queue
from lakelog.format.queue_units import UNIT, RawUnits
from lakelog.format.sysflag import PREPARED

Places = NDArray[np.int64]


@attrs.frozen(eq=False)
class QueueGroup:
    """The records of one queue, in the order of the log.

    :ivar records: ``int64``, their numbers in the batch
    :ivar raw: their units as they stand in a file, with codes of tags, where these are known
    :ivar first: the queue offset that the first one states, where it is known that each of the
        others states the one behind that of the record before it
    """

    queue: Queue
    records: Places
    raw: RawUnits | None = None
    first: int | None = None


def queue_groups(batch: RecordBatch) -> list[QueueGroup]:
    """The queues of a batch, in the order in which they come."""
    accelerator = current()
    if accelerator is not None:
        found = accelerator.queue_units(batch.buffer, batch.starts)
        if found is not None:
            return _groups(*found)
    places: dict[Queue, list[int]] = {}
    rows = zip(batch.queue_ids.tolist(), batch.sys_flags.tolist(), strict=True)
    for at, (queue_id, flags) in enumerate(rows):
        if not flags & PREPARED:
            places.setdefault((_topic(batch, at), queue_id), []).append(at)
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


def _topic(batch: RecordBatch, record: int) -> str:
    start = int(batch.topic_positions[record])
    end = start + int(batch.topic_lengths[record])
    return bytes(batch.buffer[start:end]).decode(errors="replace")
