"""From a batch of records to the units of each queue: pure functions of the batch.

Records whose topic names no folder have no unit, nor do those that :mod:`.queuegroups` leaves out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Final

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.codec.queue_groups import QueueGroup, queue_groups
from lakelog.codec.record_batch import RecordBatch
from lakelog.format.properties import DELAY, REPAIRED_TOPIC, SCHEDULE_TOPIC
from lakelog.format.queue_offsets import Queue
from lakelog.format.queue_units import RawUnits
from lakelog.format.sysflag import PREPARED
from lakelog.format.units import Units
from lakelog_queues.units.batchunits import inner_batches
from lakelog_queues.units.delays import delivery_time_ms
from lakelog_queues.units.foldernames import without_folders
from lakelog_queues.units.lights import light_units
from lakelog_queues.units.tags import tags_codes

_LOG: Final = logging.getLogger(__name__)

Longs = NDArray[np.int64]


@attrs.frozen(eq=False)
class QueueUnits:
    """What one queue gets from a batch, in the order of the log; times in ms since 1970."""

    queue: Queue
    units: Units
    store_times_ms: Longs


@attrs.frozen(eq=False)
class PackedUnits:
    """The same, as it stands in a file, if the queue ends where the first of its units belongs.

    :ivar first: queue offset of the first unit; the others follow it
    """

    queue: Queue
    first: int
    raw: RawUnits
    unpacked: Callable[[], QueueUnits]


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
        for each in self.packed(batch):
            yield each.unpacked() if isinstance(each, PackedUnits) else each

    def packed(self, batch: RecordBatch) -> Iterator[QueueUnits | PackedUnits]:
        """The same, packed where that could be had at once."""
        if not len(batch):
            return
        groups = queue_groups(batch)
        bad = without_folders({group.queue[0] for group in groups})
        lights = self._lights(batch) if self.light_queues else []
        groups.sort(key=lambda group: group.queue[0] != REPAIRED_TOPIC)
        for group in groups:
            topic = group.queue[0]
            alive = self._alive(batch, group)
            if topic in bad or not len(alive.records):
                continue
            if topic in self.batch_topics:
                yield from _inner_batches(batch, group.queue, alive.records)
            elif alive.raw is None or alive.first is None or topic == SCHEDULE_TOPIC:
                yield _units(batch, alive)
            else:
                unpacked = partial(_units, batch, alive)
                yield PackedUnits(group.queue, alive.first, alive.raw, unpacked)
        yield from lights

    def _alive(self, batch: RecordBatch, group: QueueGroup) -> QueueGroup:
        """Without records that a tombstone buries."""
        buried = self.tombstones.get(group.queue[0], 0)
        if not buried or int(batch.physical_offsets[group.records].min()) >= buried:
            return group
        return QueueGroup(
            group.queue, group.records[batch.physical_offsets[group.records] >= buried]
        )

    def _lights(self, batch: RecordBatch) -> list[QueueUnits]:
        found: dict[Queue, list[tuple[int, int]]] = {}
        for queue, queue_offset, record in light_units(batch, (batch.sys_flags & PREPARED) == 0):
            if int(batch.physical_offsets[record]) >= self.tombstones.get(queue[0], 0):
                found.setdefault(queue, []).append((queue_offset, record))
        made = []
        for queue, pairs in found.items():
            stated, records = np.array(pairs, np.int64).T
            each = _units(batch, QueueGroup(queue, records))
            made.append(attrs.evolve(each, units=attrs.evolve(each.units, queue_offsets=stated)))
        return made


def _units(batch: RecordBatch, group: QueueGroup) -> QueueUnits:
    records, times_ms = group.records, batch.store_timestamps_ms[group.records]
    if group.raw is not None:
        codes = group.raw["tags_code"].astype(np.int64)
    else:
        codes = tags_codes(batch.take(records))
    if group.queue[0] == SCHEDULE_TOPIC:
        levels = [each.get(DELAY) for each in batch.take(records).properties]
        for at, level in enumerate(levels):
            due_ms = delivery_time_ms(level, int(times_ms[at]))
            codes[at] = codes[at] if due_ms is None else due_ms
    units = Units(
        batch.queue_offsets[records],
        batch.physical_offsets[records],
        batch.sizes[records],
        codes,
        np.ones(len(records), np.int32),
    )
    return QueueUnits(group.queue, units, times_ms)


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
