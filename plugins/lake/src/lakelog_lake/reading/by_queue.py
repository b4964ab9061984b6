"""Plans reads of single records by their queue units, instead of log ranges, for few records.

Queue files have the offsets of the records. They are used only for topics that the condition names
and that have queues, and only as far as the queues are known to be complete. If a read needs half
of the log or more, one sequential read is faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from lakelog_lake.log.queue_files import QueueFiles, Raw, real, topics_of_batches
from lakelog_lake.log.record_starts import RecordStarts
from lakelog_lake.log.wanted import LAST, NumberSpan, RecordCondition

_SAMPLE = 64
_WORTH = 0.5
_FINEST_BYTES = 4096
_OF_A_BROKER = "config/topics.json"
"""A file that every RocketMQ broker writes at its start."""


@attrs.frozen
class UnitsOf:
    """Units of one queue, from ``first`` (inclusive) to ``end`` (exclusive).

    :ivar record_bytes: approximate size of a record
    """

    queue: QueueFiles
    first: int
    end: int
    record_bytes: int

    @property
    def bytes(self) -> int:
        """Approximate total size of the records."""
        return (self.end - self.first) * self.record_bytes

    def named(self) -> tuple[str, int, int, int]:
        """Topic, queue id, first unit, and end (exclusive)."""
        return (*self.queue.queue, self.first, self.end)

    def split(self, offset: int) -> tuple[UnitsOf, UnitsOf]:
        """Split into the units of records before a physical offset, and the others."""
        middle = self.queue.first_from(offset, self.first, self.end)
        return attrs.evolve(self, end=middle), attrs.evolve(self, first=middle)


@attrs.frozen
class QueueRun:
    """The work of one task: units whose records are in one part of the log."""

    part: NumberSpan
    units: Sequence[tuple[str, int, int, int]]


def queue_runs(
    marks: RecordStarts, part: NumberSpan, wanted: RecordCondition, most_bytes: int
) -> list[QueueRun] | None:
    """Plan runs with at most about ``most_bytes`` of records each.

    :returns: ``None`` if ``part`` should be read sequentially instead
    """
    topics = named_topics(wanted)
    if topics is None or wanted.unqueued or part.low >= part.end:
        return None
    if topics - {each.queue[0] for each in marks.queues} or topics & topics_of_batches(
        marks.store.path
    ):
        return None
    found = [_units_of(each, part, wanted) for each in marks.queues if wanted.has_queue(each.queue)]
    found = [each for each in found if each.first < each.end]
    if sum(each.bytes for each in found) > (part.end - part.low) * _WORTH:
        return None
    return list(_split(part, found, most_bytes))


def queued_from(marks: RecordStarts, wanted: RecordCondition) -> int:
    """The physical offset from which on the queues have a unit for each record of the named topics.

    Before the first unit of a topic there may be records of deleted queues. The queues of a topic
    are deleted together, so the smallest first offset of its queues counts. A queue deleted by
    lakelog continues its queue offsets; a queue deleted by a broker starts again at 0.
    """
    topics, has_broker = named_topics(wanted) or (), (marks.store.path / _OF_A_BROKER).exists()
    begin: dict[str, int] = {}
    for queue in marks.queues:
        topic = queue.queue[0]
        if topic in topics:
            begin[topic] = min(begin.get(topic, LAST), _first_place(queue, has_broker))
    return max(begin.values(), default=0)


def _first_place(queue: QueueFiles, has_broker: bool) -> int:
    """The physical offset of a queue's first unit; 0 if that is of its first message."""
    unit = queue.first_from(1)  # units of deleted queues have offset 0
    if queue.place(unit - 1) is not None or (unit == 0 and not has_broker):
        return 0
    found = queue.place(unit)
    return LAST if found is None else found[0]


def named_topics(wanted: RecordCondition) -> frozenset[str] | None:
    """The topics that records may have; ``None`` if topics were not named."""
    if wanted.queues is not None:
        of_queues = frozenset(topic for topic, _ in wanted.queues)
        return of_queues if wanted.topics is None else of_queues & wanted.topics
    return wanted.topics


def _units_of(queue: QueueFiles, part: NumberSpan, wanted: RecordCondition) -> UnitsOf:
    first = queue.first_from(part.low)
    span = NumberSpan(first, queue.first_from(part.end, first)).both(wanted.span_of(queue.queue))
    raw = queue.units((span.low + span.end) // 2, _SAMPLE) if span.low < span.end else None
    return UnitsOf(queue, span.low, span.end, 1 if raw is None else _mean_bytes(raw))


def _mean_bytes(raw: Raw) -> int:
    sizes = raw["size"][real(raw)]
    return max(1, int(sizes.mean())) if len(sizes) else 1


def _split(part: NumberSpan, units: Sequence[UnitsOf], most_bytes: int) -> Iterable[QueueRun]:
    there = [each for each in units if each.first < each.end]
    if not there:
        return
    if sum(each.bytes for each in there) <= most_bytes or part.end - part.low <= _FINEST_BYTES:
        yield QueueRun(part, tuple(each.named() for each in there))
        return
    middle = (part.low + part.end) // 2
    halves = [each.split(middle) for each in there]
    yield from _split(NumberSpan(part.low, middle), [a for a, _ in halves], most_bytes)
    yield from _split(NumberSpan(middle, part.end), [b for _, b in halves], most_bytes)
