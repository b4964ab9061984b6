"""Builds the units of each queue from a batch of records; the result depends on nothing else.

Prepared and rolled back messages belong to no queue. Records whose topic cannot name a folder get
no unit. Source: RocketMQ's ``CommitLog`` and
``DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue``.

Checks whether a topic can be the name of a folder; records of any other topic get no unit.

``put`` refuses such topics, yet a log may hold them: RocketMQ's store accepts any topic, and only
its broker refuses (``TopicValidator``). RocketMQ creates a queue for such a topic in a nested
folder (``a/b``) or outside the queues (``..``), and does not find it after a restart.

Light queues: one record has units in several queues.

``INNER_MULTI_DISPATCH`` lists queues, and ``INNER_MULTI_QUEUE_OFFSET`` the queue offset in each. If
the lists differ in length, as with a name that is no light queue's, the record gets no unit in any
of them. Source: RocketMQ's ``ConsumeQueue.multiDispatchLmqQueue`` and ``MultiDispatchUtils``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.accelerate import current
from lakelog.format.layout import PREPARED
from lakelog.format.properties import (
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    LIGHT_QUEUE_PREFIX,
    MULTI_DISPATCH_SEPARATOR,
    REPAIRED_TOPIC,
    SCHEDULE_TOPIC,
    decode_properties,
    feeds_light_queues,
)
from lakelog.format.queue_offsets import Longs, Queue, Units
from lakelog.format.record_batch import RecordBatch
from lakelog.lazy import np
from lakelog_queues.units.simpleunits import UNIT_BYTES, columns
from lakelog_queues.units.tags import delivery_time_ms

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOG: Final = logging.getLogger(__name__)
_LONGEST_BYTES: Final = 255
"""``NAME_MAX`` of Linux's file systems."""


def names_folder(topic: str) -> bool:
    """Whether ``topic`` is a valid name of one folder, without a path."""
    if topic in ("", ".", "..") or "/" in topic or "\x00" in topic:
        return False
    return len(topic.encode(errors="surrogateescape")) <= _LONGEST_BYTES


def without_folders(topics: Iterable[str]) -> set[str]:
    """The topics that cannot have queues; logs a warning for each."""
    bad = {topic for topic in topics if not names_folder(topic)}
    for topic in sorted(bad):
        _LOG.warning("topic %r cannot name a folder; its messages are in the log only", topic)
    return bad


@attrs.frozen(eq=False)
class QueueGroup:
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


@attrs.frozen(eq=False)
class QueueUnits:
    """The units of one queue from a batch, in the order of the log; times in ms since 1970."""

    queue: Queue
    units: Units
    store_times_ms: Longs


@attrs.frozen(eq=False)
class PackedUnits:
    """The units of one queue from a batch in file format, if their queue offsets are consecutive.

    They can be written at once if the queue ends at ``first``.

    :ivar first: queue offset of the first unit
    :ivar raw: the units, 20 bytes each
    :ivar unpacked: returns the units as :class:`QueueUnits`
    """

    queue: Queue
    first: int
    raw: memoryview
    unpacked: Callable[[], QueueUnits]


@attrs.frozen
class Grouping:
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
        for each in self.packed(batch):
            yield each.unpacked() if isinstance(each, PackedUnits) else each

    def packed(self, batch: RecordBatch) -> Iterator[QueueUnits | PackedUnits]:
        """As :meth:`units`; in file format if the grouping has produced it already."""
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
        """The group without records below the topic's tombstone."""
        tombstone = self.tombstones.get(group.queue[0], 0)
        if not tombstone:
            return group
        records = np.asarray(group.records)
        alive = batch.physical_offsets[records] >= tombstone
        return group if alive.all() else QueueGroup(group.queue, records[alive])

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
    from lakelog_queues.units.tags import tags_codes

    records = np.asarray(group.records)
    times_ms = batch.store_timestamps_ms[records]
    if group.raw is not None:
        codes = columns(group.raw)["tags_code"].astype(np.int64)
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


def _inner_batches(
    batch: RecordBatch, queue: Queue, records: Longs | memoryview
) -> Iterator[QueueUnits]:
    """Units of records that hold several messages; other records cannot be in a batch queue."""
    from lakelog_queues.units.batchunits import inner_batches

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
        yield QueueUnits(queue, units, times)


_NAMED: Final = INNER_MULTI_QUEUE_OFFSET.encode()
_SEARCH: Final = re.compile(re.escape(_NAMED))


def light_units(batch: RecordBatch, queued: NDArray[np.bool_]) -> Iterator[tuple[Queue, int, int]]:
    """Queue, queue offset and index of the record for each unit, in the order of the log.

    :param queued: for each record, whether it may have units
    """
    if _SEARCH.search(batch.buffer) is None:
        return
    for record in np.flatnonzero(queued).tolist():
        start = int(batch.property_positions[record])
        raw = bytes(batch.buffer[start : start + int(batch.property_lengths[record])])
        if _NAMED in raw:
            yield from _units_of(batch, record, decode_properties(raw))


def _units_of(
    batch: RecordBatch, record: int, properties: dict[str, str]
) -> Iterator[tuple[Queue, int, int]]:
    topic = batch[record : record + 1].topics[0]
    names = _split(properties.get(INNER_MULTI_DISPATCH, ""))
    offsets = _split(properties.get(INNER_MULTI_QUEUE_OFFSET, ""))
    if not (feeds_light_queues(topic) and names and offsets):
        return
    if len(names) != len(offsets) or not all(text.isdecimal() for text in offsets):
        _LOG.warning(
            "the record at %d of topic %s gets no light units: it lists %d queues and %d offsets",
            int(batch.physical_offsets[record]),
            topic,
            len(names),
            len(offsets),
        )
        return
    for name, offset in zip(names, offsets, strict=True):
        if names_folder(name):
            light = name.startswith(LIGHT_QUEUE_PREFIX)
            yield (name, 0 if light else int(batch.queue_ids[record])), int(offset), record


def _split(text: str) -> list[str]:
    """The elements of a list, without trailing empty ones, like Java's ``String.split``."""
    return text.rstrip(MULTI_DISPATCH_SEPARATOR).split(MULTI_DISPATCH_SEPARATOR) if text else []
