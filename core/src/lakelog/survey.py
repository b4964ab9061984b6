"""What a log holds, added up while it is read: the last store time, and the next queue offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from lakelog.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    MULTI_DISPATCH_SEPARATOR,
    decode_properties,
    light_queues,
)
from lakelog.queueoffsets import Queue
from lakelog.sysflag import INNER_BATCH, PREPARED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.codec.recordbatch import RecordBatch

INNER_NUMBER = "INNER_NUM"
"""How many messages an inner batch holds, each of which takes a queue offset."""
_DISPATCHED = INNER_MULTI_DISPATCH.encode()


@attrs.define
class Survey:
    """What was read.

    :ivar start_offset: where it began
    :ivar end_offset: behind the last whole record or blank
    :ivar last_timestamp_ms: store time of the last record
    :ivar next_offsets: the offset that the next message of each queue takes
    :ivar records: how many whole ones there are
    :ivar highest_timestamp_ms: store time of the youngest record; a clock may have been set back
    """

    start_offset: int
    end_offset: int
    last_timestamp_ms: int = 0
    next_offsets: dict[Queue, int] = attrs.Factory(dict)
    records: int = 0
    highest_timestamp_ms: int = 0

    def raise_offset(self, queue: Queue, next_offset: int) -> None:
        """The next offset of ``queue`` is at least this."""
        if self.next_offsets.get(queue, 0) < next_offset:
            self.next_offsets[queue] = next_offset

    def join(self, behind: Survey) -> None:
        """Add what was read right behind."""
        self.end_offset = behind.end_offset
        self.records += behind.records
        self.last_timestamp_ms = behind.last_timestamp_ms or self.last_timestamp_ms
        self._raise_time(behind.highest_timestamp_ms)
        for queue, end in behind.next_offsets.items():
            self.raise_offset(queue, end)

    def count(self, batch: RecordBatch) -> None:
        """Add a run of records."""
        self.end_offset = batch.end_offset
        times = batch.store_timestamps_ms
        self.last_timestamp_ms = int(times[-1])
        self._raise_time(int(times.max()))
        self.records += len(batch)
        flags = batch.sys_flags
        for queue, queue_offset in _highest(batch, flags):
            self.raise_offset(queue, queue_offset + 1)
        self._count_inner_batches(batch, flags)
        self._count_light_queues(batch)

    def _raise_time(self, found_ms: int) -> None:
        self.highest_timestamp_ms = max(self.highest_timestamp_ms, found_ms)

    def _count_inner_batches(self, batch: RecordBatch, flags: NDArray[Any]) -> None:
        for at in (flags & INNER_BATCH).nonzero()[0].tolist():
            number = batch.properties[at].get(INNER_NUMBER, "1")
            taken = int(number) if number.isdigit() else 1
            queue = (batch.topics[at], int(batch.queue_ids[at]))
            self.raise_offset(queue, int(batch.queue_offsets[at]) + taken)

    def _count_light_queues(self, batch: RecordBatch) -> None:
        if not _has_light_queues(batch):
            return
        for raw in batch.property_strings:
            if _DISPATCHED in raw:
                properties = decode_properties(raw)
                topics = light_queues(properties.get(INNER_MULTI_DISPATCH, ""))
                stated = properties.get(INNER_MULTI_QUEUE_OFFSET, "")
                offsets = stated.split(MULTI_DISPATCH_SEPARATOR)
                for topic, offset in zip(topics, offsets, strict=False):
                    if offset.isdigit():
                        self.raise_offset((topic, 0), int(offset) + 1)


def _highest(batch: RecordBatch, flags: NDArray[Any]) -> Iterator[tuple[Queue, int]]:
    """The highest queue offset of each queue in a run; prepared messages take none."""
    import numpy as np

    from lakelog.consumequeue.topicgroups import topic_groups

    queued = (flags & PREPARED) == 0
    names, numbers = topic_groups(batch)
    for number, name in enumerate(names):
        of_topic = queued & (numbers == number)
        ids, offsets = batch.queue_ids[of_topic], batch.queue_offsets[of_topic]
        order = np.argsort(ids, kind="stable")
        ids, offsets = ids[order], offsets[order]
        firsts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])[: len(ids)])
        highest = np.maximum.reduceat(offsets, firsts) if len(firsts) else offsets
        queues = ((name, each) for each in ids[firsts].tolist())
        yield from zip(queues, highest.tolist(), strict=True)


def _has_light_queues(batch: RecordBatch) -> bool:
    """Whether any record may feed one; a search in all bytes at once costs next to nothing."""
    from lakelog.codec.propertyblocks import pays, property_blocks

    if pays(batch):
        return any(_DISPATCHED in block.tobytes() for _, block in property_blocks(batch))
    held = batch.buffer.obj
    return not isinstance(held, bytes) or _DISPATCHED in held
