"""Plans a read, without a scan: splits it into ranges of the log, one for each task.

A record belongs to exactly one range: the range in which it starts. For a read of few records, a
range lists units of queues, and the task reads only the records of these units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs

import lakelog
from lakelog.errors import MissingIndex
from lakelog_lake.errors import OffsetUnavailable
from lakelog_lake.log.ends import end_of, queued_end
from lakelog_lake.log.record_starts import RecordStarts
from lakelog_lake.log.wanted import LAST, NumberSpan, RecordCondition
from lakelog_lake.reading.by_queue import named_topics, queue_runs, queued_from
from lakelog_lake.reading.cuts import runs
from lakelog_lake.reading.options import SKIP, ReadOptions
from lakelog_lake.reading.times import part_of_times

UnitRun: TypeAlias = tuple[str, int, int, int]
"""Topic, queue id, first unit, and end (exclusive)."""


@attrs.frozen
class LogRange:
    """Records that start in ``start`` (inclusive) to ``end`` (exclusive), in bytes of the log.

    :ivar units: if given, only the records of these units
    :ivar places: if given, only the records at these physical offsets
    """

    start: int
    end: int
    units: Sequence[UnitRun] | None = None
    places: Sequence[int] | None = None


def plan(store: lakelog.Store, options: ReadOptions) -> list[LogRange]:
    """The ranges of a store's present content.

    Raises :class:`~lakelog_lake.errors.DurableEndUnknown` for ``until=flushed`` if the durable end
    is not known, and :class:`~lakelog_lake.errors.OffsetUnavailable`.
    """
    with RecordStarts.of(store) as marks:
        end = end_of(marks, options.until)
        check_start(marks, options, end)
        return plan_between(marks, NumberSpan(store.min_offset, end), options)


def plan_between(marks: RecordStarts, part: NumberSpan, options: ReadOptions) -> list[LogRange]:
    """The ranges of one part of the log, which must begin at the start of a record."""
    wanted = options.wanted
    if part.low >= part.end:
        return []
    key = wanted.key
    part = _narrowed(marks, part, options)
    places = None
    if key is not None and " " not in key and not wanted.unqueued:  # keys have no spaces
        places = _by_key(marks, part, wanted, key)
    if places is not None:
        return [LogRange(part.low, part.end, places=places)] if places else []
    queued = _queued(marks, part, wanted)
    chosen = queue_runs(marks, queued, wanted, options.max_partition_bytes)
    if chosen is None:
        return _scanned(marks, part, options)
    return [
        *_scanned(marks, NumberSpan(part.low, queued.low), options),
        *(LogRange(each.part.low, each.part.end, units=each.units) for each in chosen),
        *_scanned(marks, NumberSpan(queued.end, part.end), options),
    ]


def _queued(marks: RecordStarts, part: NumberSpan, wanted: RecordCondition) -> NumberSpan:
    """The span within ``part`` whose records of the named topics are all in queue files."""
    end = queued_end(marks, part.end)
    end = part.end if end >= part.end else marks.before(end, part.low)
    low = min(max(part.low, queued_from(marks, wanted)), part.end)
    return NumberSpan(low, max(low, end))


def _narrowed(marks: RecordStarts, part: NumberSpan, options: ReadOptions) -> NumberSpan:
    """The span within ``part`` that can hold wanted records; starts at a record."""
    part = part_of_times(marks, part, options.times_ms)
    within = options.wanted.physical.both(part)
    if within.low >= within.end:
        return NumberSpan(part.low, part.low)
    low = within.low if within.low == part.low else marks.before(within.low, part.low)
    return NumberSpan(low, within.end)


def _by_key(
    marks: RecordStarts, part: NumberSpan, wanted: RecordCondition, key: str
) -> list[int] | None:
    """The physical offsets of records with ``key`` in the index; ``None`` without an index."""
    store = marks.store
    topics = named_topics(wanted)
    try:
        found = {
            offset
            for topic in (store.topics() if topics is None else topics)
            if wanted.has_topic(topic)
            for offset in store.query_offsets(topic, key, max_count=LAST)
        }
    except MissingIndex:
        return None
    return sorted(each for each in found if part.low <= each < part.end)


def check_start(marks: RecordStarts, options: ReadOptions, end: int) -> None:
    """Raise :class:`~lakelog_lake.errors.OffsetUnavailable` unless the start is in the log."""
    start, minimum = options.start, marks.store.min_offset
    if start.offset is not None and start.offset > end:
        raise OffsetUnavailable(marks.store.path, start.offset, minimum, end)
    if options.lost == SKIP:
        return
    if start.offset is not None and start.offset < minimum:
        raise OffsetUnavailable(marks.store.path, start.offset, minimum, end)
    for queue in marks.queues:
        asked, first = (start.queues or {}).get(queue.queue), queue.first_from(minimum)
        if asked is not None and asked < first:
            raise OffsetUnavailable(marks.store.path, asked, first, queue.end, queue.queue)


def _scanned(marks: RecordStarts, part: NumberSpan, options: ReadOptions) -> list[LogRange]:
    segment = marks.store.settings.core.segment_size_bytes
    if part.low >= part.end:
        return []
    cut = runs(part, segment, options.max_partition_bytes, marks.behind)
    return [LogRange(each.low, each.end) for each in cut]
