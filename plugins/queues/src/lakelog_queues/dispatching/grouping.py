"""Builds the units of each queue from a batch of records; the result depends on nothing else.

Prepared and rolled back messages belong to no queue. Source: RocketMQ's ``CommitLog`` and
``DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue``.

Records whose topic cannot be the name of a folder get no unit. ``put`` refuses such topics, yet a
log may hold them: RocketMQ's store accepts any topic, and only its broker refuses
(``TopicValidator``). RocketMQ creates a queue for such a topic in a nested folder (``a/b``) or
outside the queues (``..``), and does not find it after a restart.

A record has units in several light queues. ``INNER_MULTI_DISPATCH`` lists them, and
``INNER_MULTI_QUEUE_OFFSET`` the queue offset in each. If the lists differ in length, as with a name
that is no light queue's, the record gets no unit in any of them. Source: RocketMQ's
``ConsumeQueue.multiDispatchLmqQueue`` and ``MultiDispatchUtils``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import attrs

from lakelog.accelerate import current
from lakelog.format import properties as names
from lakelog.format.layout import PREPARED
from lakelog.format.properties import REPAIRED_TOPIC, SCHEDULE_TOPIC
from lakelog.format.queue_offsets import Longs, Queue, Units
from lakelog.format.record_batch import RecordBatch
from lakelog.lazy import cached_property, np
from lakelog_queues.units.simpleunits import UNIT_BYTES, columns
from lakelog_queues.units.tags import delivery_time_ms, tags_codes

_LOG: Final = logging.getLogger(__name__)
_LONGEST_BYTES: Final = 255
"""``NAME_MAX`` of Linux's file systems."""
_OFFSETS: Final = names.INNER_MULTI_QUEUE_OFFSET.encode()
_SEPARATOR: Final = names.MULTI_DISPATCH_SEPARATOR
_SEARCH: Final = re.compile(re.escape(_OFFSETS))


class Grouping(NamedTuple):
    """Builds units from records.

    :ivar batch_topics: topics with batch queues
    :ivar light_queues: whether records feed light queues
    :ivar tombstones: by topic, the physical offset below which its records have no units
    """

    batch_topics: Collection[str]
    light_queues: bool
    tombstones: Mapping[str, int]

    def units(self, batch: RecordBatch) -> Iterator[QueueUnits]:
        """The units of each queue; first those of a repair's records, to which others may lead."""
        if not len(batch):
            return
        groups = sorted(queue_groups(batch), key=lambda each: each.queue[0] != REPAIRED_TOPIC)
        bad = {group.queue[0] for group in groups if not names_folder(group.queue[0])}
        for topic in sorted(bad):
            _LOG.warning("topic %r cannot name a folder; its messages are in the log only", topic)
        lights = self._lights(batch) if self.light_queues else []
        for group in groups:
            topic = group.queue[0]
            alive = self._alive(batch, group)
            if topic in bad or not len(alive.records):
                continue
            if topic in self.batch_topics:
                yield from _inner_batches(batch, group.queue, alive.records)
                continue
            known = alive.first is not None and topic != SCHEDULE_TOPIC
            raw = alive.raw if known else None
            yield QueueUnits(group.queue, partial(_units, batch, alive), raw, alive.first or 0)
        yield from lights

    def _alive(self, batch: RecordBatch, group: QueueGroup) -> QueueGroup:
        """The group without records below the topic's tombstone."""
        tombstone = self.tombstones.get(group.queue[0], 0)
        if not tombstone:
            return group
        records = np.asarray(group.records)
        alive = batch.physical_offsets[records] >= tombstone
        return group if alive.all() else QueueGroup(group.queue, records[alive])

    def _lights(self, batch: RecordBatch) -> list[QueueUnits]:
        """The units of light queues."""
        found: dict[Queue, list[tuple[int, int]]] = {}
        for queue, queue_offset, record in light_units(batch):
            if int(batch.physical_offsets[record]) >= self.tombstones.get(queue[0], 0):
                found.setdefault(queue, []).append((queue_offset, record))
        return [
            QueueUnits(queue, partial(_light, batch, queue, pairs))
            for queue, pairs in found.items()
        ]


def _light(batch: RecordBatch, queue: Queue, pairs: list[tuple[int, int]]) -> tuple[Units, Longs]:
    """The units for pairs of queue offset and record."""
    stated, records = np.array(pairs, np.int64).T
    units, times_ms = _units(batch, QueueGroup(queue, records))
    units.queue_offsets[:] = stated
    return units, times_ms


@attrs.define(eq=False, slots=False)
class QueueUnits:
    """The units of one queue from a batch, in the order of the log.

    :param build: returns the units, and the store times in ms since 1970
    :ivar raw: the units in file format, 20 bytes each, if the grouping has produced them and their
        queue offsets are consecutive from ``first``; they can be written at once if the queue ends
        there
    """

    queue: Queue
    _build: Callable[[], tuple[Units, Longs]]
    raw: memoryview | None = None
    first: int = 0

    @cached_property
    def columns(self) -> tuple[Units, Longs]:
        """The units, and the store times of their records in ms since 1970."""
        return self._build()


class QueueGroup(NamedTuple):
    """The records of one queue, in log order.

    :ivar records: ``int64``, their indices in the batch; a view if the accelerator found them
    :ivar raw: their units in file format, with tags codes, if the accelerator built them
    :ivar first: queue offset of the first record if the offsets are known to be consecutive, else
        ``None``
    """

    queue: Queue
    records: Longs | memoryview
    raw: memoryview | None = None
    first: int | None = None


def names_folder(topic: str) -> bool:
    """Whether ``topic`` is a valid name of one folder, without a path."""
    if topic in ("", ".", "..") or "/" in topic or "\x00" in topic:
        return False
    return len(topic.encode(errors="surrogateescape")) <= _LONGEST_BYTES


def queue_groups(batch: RecordBatch) -> list[QueueGroup]:
    """The queues of a batch, in order of first appearance."""
    accelerator = current()
    if accelerator is not None:
        found = accelerator.queue_units(batch.buffer, batch.raw_starts)
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
    records, groups, at = places.cast("q"), [], 0
    for topic, queue_id, count, first in queues:
        end = at + count
        raw = units[at * UNIT_BYTES : end * UNIT_BYTES]
        groups.append(QueueGroup((topic, queue_id), records[at:end], raw, first))
        at = end
    return groups


def _units(batch: RecordBatch, group: QueueGroup) -> tuple[Units, Longs]:
    """The units of a simple queue, and the store times of their records."""
    records = np.asarray(group.records)
    times_ms = batch.store_timestamps_ms[records]
    if group.raw is not None:
        codes = columns(group.raw)["tags_code"].astype(np.int64)
    else:
        codes = tags_codes(batch.take(records))
    if group.queue[0] == SCHEDULE_TOPIC:
        levels = [each.get(names.DELAY) for each in batch.take(records).properties]
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
    return units, times_ms


def _inner_batches(
    batch: RecordBatch, queue: Queue, records: Longs | memoryview
) -> Iterator[QueueUnits]:
    """Units of records that hold several messages; other records cannot be in a batch queue."""
    from lakelog_queues.files.batchqueue import inner_batches

    starts = batch.starts[np.asarray(records)]
    units, times = inner_batches(RecordBatch(batch.buffer, batch.base_offset, starts))
    if len(units) < len(records):
        _LOG.warning(
            "queue %s/%d is a batch queue: %d records without valid properties INNER_BASE and "
            "INNER_NUM get no unit",
            *queue,
            len(records) - len(units),
        )
    if len(units):
        yield QueueUnits(queue, lambda: (units, times))


def light_units(batch: RecordBatch) -> Iterator[tuple[Queue, int, int]]:
    """Queue, queue offset and index of the record for each unit, in the order of the log."""
    if _SEARCH.search(batch.buffer) is None:  # most batches; NumPy is not imported for them
        return
    for record in np.flatnonzero((batch.sys_flags & PREPARED) == 0).tolist():
        start = int(batch.property_positions[record])
        raw = bytes(batch.buffer[start : start + int(batch.property_lengths[record])])
        if _OFFSETS in raw:
            yield from _units_of(batch, record, names.decode_properties(raw))


def _units_of(
    batch: RecordBatch, record: int, properties: dict[str, str]
) -> Iterator[tuple[Queue, int, int]]:
    topic = batch[record : record + 1].topics[0]
    queues = _split(properties.get(names.INNER_MULTI_DISPATCH, ""))
    offsets = _split(properties.get(names.INNER_MULTI_QUEUE_OFFSET, ""))
    if not (names.feeds_light_queues(topic) and queues and offsets):
        return
    if len(queues) != len(offsets) or not all(text.isdecimal() for text in offsets):
        _LOG.warning(
            "the record at %d of topic %s gets no light units: it lists %d queues and %d offsets",
            int(batch.physical_offsets[record]),
            topic,
            len(queues),
            len(offsets),
        )
        return
    for name, offset in zip(queues, offsets, strict=True):
        if names_folder(name):
            light = name.startswith(names.LIGHT_QUEUE_PREFIX)
            yield (name, 0 if light else int(batch.queue_ids[record])), int(offset), record


def _split(text: str) -> list[str]:
    """The elements of a list, without trailing empty ones, like Java's ``String.split``."""
    return text.rstrip(_SEPARATOR).split(_SEPARATOR) if text else []
