"""What single tasks read: runs of the log between known places; the driver scans nothing.

A record stands in exactly one run: the one in which it starts. Where few records are wanted, a run
says in which units of which queues they are, and the task reads those only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs

import lakelog
from lakelog.errors import MissingIndex
from lakelog_lake.errors import OffsetGone
from lakelog_lake.log.ends import end_of, queued_end
from lakelog_lake.log.landmarks import Landmarks
from lakelog_lake.log.wanted import LAST, NumberSpan, RecordCondition
from lakelog_lake.reading.by_queue import named_topics, queue_runs, queued_from
from lakelog_lake.reading.cuts import runs
from lakelog_lake.reading.options import SKIP, ReadOptions
from lakelog_lake.reading.times import part_of_times

UnitRun: TypeAlias = tuple[str, int, int, int]
"""Topic, queue id, first unit, and the one behind the last."""


@attrs.frozen
class LogRange:
    """Records that start from ``start`` up to ``end``, offsets in the log in bytes.

    :ivar units: only those that these units lead to
    :ivar places: only those that start at these offsets
    """

    start: int
    end: int
    units: Sequence[UnitRun] | None = None
    places: Sequence[int] | None = None


def plan(store: lakelog.Store, options: ReadOptions) -> list[LogRange]:
    """The runs of what the store holds now.

    Raises :class:`~lakelog_lake.errors.NotKnown` for ``until=flushed`` where that is not known,
    and :class:`~lakelog_lake.errors.OffsetGone`.
    """
    with Landmarks.of(store) as marks:
        end = end_of(marks, options.until)
        check_start(marks, options, end)
        return plan_between(marks, NumberSpan(store.min_offset, end), options)


def plan_between(marks: Landmarks, part: NumberSpan, options: ReadOptions) -> list[LogRange]:
    """The runs of one part of the log, which must begin where a record does."""
    wanted = options.wanted
    if part.low >= part.end:
        return []
    key = wanted.key
    part = _narrowed(marks, part, options)
    places = None
    if key is not None and " " not in key and not wanted.unqueued:  # no key of the index has one
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


def _queued(marks: Landmarks, part: NumberSpan, wanted: RecordCondition) -> NumberSpan:
    """What of ``part`` has its records, those of the named topics, in the files of their queues."""
    end = queued_end(marks, part.end)
    end = part.end if end >= part.end else marks.before(end, part.low)
    low = min(max(part.low, queued_from(marks, wanted)), part.end)
    return NumberSpan(low, max(low, end))


def _narrowed(marks: Landmarks, part: NumberSpan, options: ReadOptions) -> NumberSpan:
    """What of ``part`` can hold what is wanted; it begins where a record does."""
    part = part_of_times(marks, part, options.times_ms)
    within = options.wanted.physical.both(part)
    if within.low >= within.end:
        return NumberSpan(part.low, part.low)
    low = within.low if within.low == part.low else marks.before(within.low, part.low)
    return NumberSpan(low, within.end)


def _by_key(
    marks: Landmarks, part: NumberSpan, wanted: RecordCondition, key: str
) -> list[int] | None:
    """Where the index says that records with ``key`` are; ``None`` where none is kept."""
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


def check_start(marks: Landmarks, options: ReadOptions, end: int) -> None:
    """Raise :class:`~lakelog_lake.errors.OffsetGone` unless the log reaches back to the start."""
    start, minimum = options.start, marks.store.min_offset
    if start.offset is not None and start.offset > end:
        raise OffsetGone(marks.store.path, start.offset, minimum, end)
    if options.lost == SKIP:
        return
    if start.offset is not None and start.offset < minimum:
        raise OffsetGone(marks.store.path, start.offset, minimum, end)
    for queue in marks.queues:
        asked, first = (start.queues or {}).get(queue.queue), queue.first_from(minimum)
        if asked is not None and asked < first:
            raise OffsetGone(marks.store.path, asked, first, queue.end, queue.queue)


def _scanned(marks: Landmarks, part: NumberSpan, options: ReadOptions) -> list[LogRange]:
    segment = marks.store.settings.core.segment_size_bytes
    if part.low >= part.end:
        return []
    cut = runs(part, segment, options.max_partition_bytes, marks.behind)
    return [LogRange(each.low, each.end) for each in cut]
