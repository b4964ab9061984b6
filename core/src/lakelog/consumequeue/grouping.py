"""From a batch of records to the units of each queue: pure functions of the batch.

Prepared and rolled back messages have no unit, nor do those whose topic names no folder. Source:
RocketMQ's ``CommitLog`` and ``DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.codec.recordbatch import RecordBatch
from lakelog.consumequeue.batchunits import inner_batches
from lakelog.consumequeue.delays import delivery_time_ms
from lakelog.consumequeue.foldernames import with_folders
from lakelog.consumequeue.lights import light_units
from lakelog.consumequeue.tags import tags_codes
from lakelog.consumequeue.topicgroups import topic_groups
from lakelog.properties import DELAY, REPAIRED_TOPIC, SCHEDULE_TOPIC, decode_properties
from lakelog.queueoffsets import Queue
from lakelog.sysflag import PREPARED
from lakelog.units import Units

_LOG: Final = logging.getLogger(__name__)
_MOST_BUCKETS: Final = 1 << 16

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


@attrs.frozen(eq=False)
class QueueUnits:
    """What one queue gets from a batch, in the order of the log; times in ms since 1970."""

    queue: Queue
    units: Units
    store_times_ms: Longs


@attrs.frozen
class Grouping:
    """How records become units.

    :ivar batch_topics: topics whose queues are queues of batches
    :ivar light_queues: whether records feed light queues
    :ivar tombstones: by topic, the physical offset below which its records make no units
    """

    batch_topics: Collection[str]
    light_queues: bool
    tombstones: Mapping[str, int]

    def units(self, batch: RecordBatch) -> Iterator[QueueUnits]:
        """The units of each queue; first those of replacements, which others may lead to."""
        if not len(batch):
            return
        names, topics = topic_groups(batch)
        queued = (batch.sys_flags & PREPARED) == 0
        alive = queued & self._not_buried(batch, names, topics) & with_folders(names)[topics]
        columns = _columns(batch, names, topics)
        lights = list(light_units(batch, queued)) if self.light_queues else []
        queues = list(_queues(batch, names, topics, alive))
        if REPAIRED_TOPIC in names:
            queues.sort(key=lambda each: each[0][0] != REPAIRED_TOPIC)
        for queue, records in queues:
            if queue[0] in self.batch_topics:
                yield from _inner_batches(batch, queue, records)
            else:
                yield QueueUnits(queue, columns[records], batch.store_timestamps_ms[records])
        yield from self._lights(batch, lights, columns)

    def _not_buried(self, batch: RecordBatch, names: list[str], topics: Longs) -> Flags:
        if not self.tombstones:
            return np.ones(len(batch), np.bool_)
        ends = np.array([self.tombstones.get(name, 0) for name in names], np.int64)
        alive: Flags = batch.physical_offsets >= ends[topics]
        return alive

    def _lights(
        self, batch: RecordBatch, lights: list[tuple[Queue, int, int]], columns: Units
    ) -> Iterator[QueueUnits]:
        found: dict[Queue, list[tuple[int, int]]] = {}
        for queue, queue_offset, record in lights:
            if int(batch.physical_offsets[record]) >= self.tombstones.get(queue[0], 0):
                found.setdefault(queue, []).append((queue_offset, record))
        for queue, pairs in found.items():
            stated, records = np.array(pairs, np.int64).T
            units = attrs.evolve(columns[records], queue_offsets=stated)
            yield QueueUnits(queue, units, batch.store_timestamps_ms[records])


def _columns(batch: RecordBatch, names: list[str], topics: Longs) -> Units:
    """Units of all records, whether they are queued or not."""
    codes = tags_codes(batch)
    if SCHEDULE_TOPIC in names:
        for record in np.flatnonzero(topics == names.index(SCHEDULE_TOPIC)).tolist():
            due = delivery_time_ms(
                _properties(batch, record).get(DELAY), int(batch.store_timestamps_ms[record])
            )
            codes[record] = codes[record] if due is None else due
    return Units(
        batch.queue_offsets,
        batch.physical_offsets,
        batch.sizes,
        codes,
        np.ones(len(batch), np.int32),
    )


def _properties(batch: RecordBatch, record: int) -> dict[str, str]:
    start = int(batch.property_positions[record])
    return decode_properties(
        bytes(batch.buffer[start : start + int(batch.property_lengths[record])])
    )


def _queues(
    batch: RecordBatch, names: list[str], topics: Longs, alive: Flags
) -> Iterator[tuple[Queue, Longs]]:
    """The queues of a batch, each with the numbers of its records, in order."""
    ids = batch.queue_ids.astype(np.int64)
    width = int(ids.max(initial=0)) + 1
    if int(ids.min(initial=0)) >= 0 and len(names) * width <= _MOST_BUCKETS:
        # Small keys are sorted by counting, which takes a tenth of the time.
        keys = (topics * width + ids).astype(np.uint16)
    else:
        keys = (topics << 32) + (ids & 0xFFFFFFFF)
    order = np.argsort(keys, kind="stable")
    order = order[alive[order]]
    cuts = np.flatnonzero(np.diff(keys[order])) + 1
    for records in np.split(order, cuts) if len(order) else ():
        first = int(records[0])
        yield (names[int(topics[first])], int(ids[first])), records


def _inner_batches(batch: RecordBatch, queue: Queue, records: Longs) -> Iterator[QueueUnits]:
    """Units of records that hold several messages; others have no place in a queue of batches."""
    units, times = inner_batches(
        RecordBatch(batch.buffer, batch.base_offset, batch.starts[records])
    )
    if len(units) < len(records):
        _LOG.warning(
            "queue %s/%d is one of batches: %d records that do not say their place and number "
            "of messages get no unit",
            *queue,
            len(records) - len(units),
        )
    if len(units):
        yield QueueUnits(queue, units, times)
