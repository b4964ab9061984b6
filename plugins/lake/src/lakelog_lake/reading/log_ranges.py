"""The ranges of the log that a read consists of: planned without a scan, and read one by a task.

A record belongs to exactly one range: the range in which it starts. Ranges are cut at the starts of
segments, which need no search, and inside of large segments at known starts of records.

For a read of few records, a range lists units of queues, and the task reads only the surroundings
of the records of these units. Queue files are used only for topics that the condition names and
that have queues, and only as far as the queues are known to be complete. If a read needs half of
the log or more, one sequential read is faster.

The part of the log with a time span follows from the headers of a few records: store times increase
along the log, except where a clock was set back. So a minute is added on both sides; the times of
the records themselves are compared exactly.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import lakelog
from lakelog.arrow import schema, to_arrow
from lakelog.errors import CorruptRecord, MissingIndex, OffsetOutOfRange
from lakelog.format.record_batch import Damage, RecordBatch
from lakelog_lake.errors import CorruptLog, OffsetUnavailable
from lakelog_lake.log import extent, records
from lakelog_lake.log.extent import RecordStarts, end_of, queued_end
from lakelog_lake.log.records import ERROR, unpacked
from lakelog_lake.log.wanted import LAST, NumberSpan, RecordCondition
from lakelog_lake.reading.options import FAIL, SKIP, ReadOptions, names_of

_SAMPLE = 64
_WORTH = 0.5
_FINEST_BYTES = 4096
_OF_A_BROKER = "config/topics.json"
"""A file that every RocketMQ broker writes at its start."""


@attrs.frozen
class LogRange:
    """Records that start in ``start`` (inclusive) to ``end`` (exclusive), in bytes of the log.

    :ivar units: if given, only the records of these units of queues: topic, queue id, first unit,
        and end (exclusive)
    :ivar places: if given, only the records at these physical offsets
    """

    start: int
    end: int
    units: Sequence[tuple[str, int, int, int]] | None = None
    places: Sequence[int] | None = None


@attrs.frozen
class UnitsOf:
    """Units of one queue, from ``first`` (inclusive) to ``end`` (exclusive).

    :ivar record_bytes: approximate size of a record
    """

    queue: extent.QueueFiles
    first: int
    end: int
    record_bytes: int

    @property
    def bytes(self) -> int:
        """Approximate total size of the records."""
        return (self.end - self.first) * self.record_bytes

    def split(self, offset: int) -> tuple[UnitsOf, UnitsOf]:
        """Split into the units of records before a physical offset, and the others."""
        middle = self.queue.first_from(offset, self.first, self.end)
        return attrs.evolve(self, end=middle), attrs.evolve(self, first=middle)


def queue_runs(
    marks: RecordStarts, part: NumberSpan, wanted: RecordCondition, most_bytes: int
) -> list[LogRange] | None:
    """Plan runs with at most about ``most_bytes`` of records each.

    :returns: ``None`` if ``part`` should be read sequentially instead
    """
    topics = named_topics(wanted)
    if topics is None or wanted.unqueued or part.low >= part.end:
        return None
    unknown = topics - {each.queue[0] for each in marks.queues}
    if unknown or topics & extent.topics_of_batches(marks.store.path):
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


def _first_place(queue: extent.QueueFiles, has_broker: bool) -> int:
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


def _units_of(queue: extent.QueueFiles, part: NumberSpan, wanted: RecordCondition) -> UnitsOf:
    first = queue.first_from(part.low)
    span = NumberSpan(first, queue.first_from(part.end, first)).both(wanted.span_of(queue.queue))
    raw = queue.units((span.low + span.end) // 2, _SAMPLE if span.low < span.end else 0)
    sizes = raw["size"][extent.real(raw)]
    return UnitsOf(queue, span.low, span.end, max(1, int(sizes.mean())) if len(sizes) else 1)


def _split(part: NumberSpan, units: Sequence[UnitsOf], most_bytes: int) -> Iterable[LogRange]:
    there = [each for each in units if each.first < each.end]
    if not there:
        return
    if sum(each.bytes for each in there) <= most_bytes or part.end - part.low <= _FINEST_BYTES:
        named = tuple((*each.queue.queue, each.first, each.end) for each in there)
        yield LogRange(part.low, part.end, named)
        return
    middle = (part.low + part.end) // 2
    halves = [each.split(middle) for each in there]
    yield from _split(NumberSpan(part.low, middle), [a for a, _ in halves], most_bytes)
    yield from _split(NumberSpan(middle, part.end), [b for _, b in halves], most_bytes)


def _targets(part: NumberSpan, segment: int, most: int) -> list[int]:
    """Approximate offsets of cuts."""
    first = part.low - part.low % segment
    if most >= segment:
        step = most // segment * segment
        return [each for each in range(first + step, part.end, step) if each > part.low]
    pieces = -(-segment // most)
    found = [
        start + number * segment // pieces
        for start in range(first, part.end, segment)
        for number in range(pieces)
    ]
    return [each for each in found if part.low < each < part.end]


def batch_end(
    marks: RecordStarts, part: NumberSpan, most_bytes: int | None, most_rows: int | None
) -> int:
    """The end of a batch that starts at ``part.low``; at most ``part.end``.

    A batch is never empty: a record, and a range without known record starts, is not cut.
    """
    end = part.end
    if most_bytes is not None and part.low < end:
        end = min(end, _cut(marks, part, part.low + most_bytes))
    if most_rows is not None and part.low < end:
        end = min(end, _cut(marks, part, _behind_rows(marks, NumberSpan(part.low, end), most_rows)))
    return end


def _cut(marks: RecordStarts, part: NumberSpan, target: int) -> int:
    """The last known start of a record up to ``target``, else the first one behind it."""
    if target >= part.end:
        return part.end
    before = marks.before(target, part.low)
    if before > part.low:
        return before
    behind = marks.behind(max(target, part.low + 1), part.end, extent.MANY)
    later = [each for each in marks.starts if part.low < each < part.end]
    return min([each for each in (behind, *later) if each is not None], default=part.end)


def _behind_rows(marks: RecordStarts, part: NumberSpan, most: int) -> int:
    """The largest offset before which at most ``most`` records have units."""
    # Light queues repeat messages.
    queues = [each for each in marks.queues if not each.queue[0].startswith("%LMQ%")]
    before = sum(each.first_from(part.low) for each in queues)
    ends = range(part.low + 1, part.end + 1)
    return part.low + bisect_right(
        ends, before + most, key=lambda end: sum(each.first_from(end) for each in queues)
    )


SLACK_MS: Final = 60_000


def part_of_times(marks: RecordStarts, part: NumberSpan, times_ms: NumberSpan) -> NumberSpan:
    """The bytes of ``part`` that can hold records stored in ``times_ms``."""
    low, end = part.low, part.end
    if times_ms.low > SLACK_MS:
        low = _edge(marks, part, times_ms.low - SLACK_MS).low
    if times_ms.end < LAST - SLACK_MS:
        end = _edge(marks, part, times_ms.end + SLACK_MS).end
    return NumberSpan(low, max(low, end))


def _edge(marks: RecordStarts, part: NumberSpan, time_ms: int) -> NumberSpan:
    """From a known record older than ``time_ms`` to the next one that is not older."""
    starts = [part.low, *(each for each in marks.starts if part.low < each < part.end)]
    found = _edge_among(marks, starts.__getitem__, len(starts), part, time_ms)
    if not marks.longest:
        return found
    queue = marks.longest[0]
    first = queue.first_from(found.low)

    def place(at: int) -> int:
        unit = queue.place(first + at)
        return -1 if unit is None else unit[0]

    return _edge_among(marks, place, queue.first_from(found.end, first) - first, found, time_ms)


def _edge_among(
    marks: RecordStarts, place: Callable[[int], int], count: int, part: NumberSpan, time_ms: int
) -> NumberSpan:
    """Narrow ``part`` to an edge among ``count`` records; one that cannot be read ends the search.

    :param place: the physical offset of a record by its index
    """
    before, behind = -1, count
    while before + 1 < behind:
        middle = (before + behind) // 2
        message = marks.message(place(middle))
        if message is None:
            break
        is_older = message.store_timestamp_ms < time_ms
        before, behind = (middle, behind) if is_older else (before, middle)
    low = part.low if before < 0 else max(part.low, place(before))
    return NumberSpan(low, part.end if behind == count else min(part.end, place(behind)))


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
        *chosen,
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
    least = 0 if options.lost == SKIP else minimum
    if start.offset is not None and not least <= start.offset <= end:
        raise OffsetUnavailable(marks.store.path, start.offset, minimum, end)
    for queue in marks.queues if options.lost != SKIP else ():
        asked, first = (start.queues or {}).get(queue.queue), queue.first_from(minimum)
        if asked is not None and asked < first:
            raise OffsetUnavailable(marks.store.path, asked, first, queue.end, queue.queue)


def _scanned(marks: RecordStarts, part: NumberSpan, options: ReadOptions) -> list[LogRange]:
    """The ranges of a sequential read; one is too large only if no record start is known inside."""
    segment, edges = marks.store.settings.core.segment_size_bytes, [part.low]
    if part.low >= part.end:
        return []
    for target in _targets(part, segment, options.max_partition_bytes):
        found: int | None = target
        if target % segment:
            found = marks.behind(target, min(part.end, target - target % segment + segment))
        if found is not None and found > edges[-1]:
            edges.append(found)
    return [LogRange(a, b) for a, b in pairwise((*edges, part.end)) if a < b]


Longs: TypeAlias = "NDArray[np.int64]"
GAP_BYTES: Final = 64 << 10
"""Records with smaller gaps between them are read together."""

_log = logging.getLogger("lakelog_lake")


def byte_spans(store: lakelog.Store, part: LogRange) -> Iterator[NumberSpan]:
    """The spans to read, in log order; each starts where a record should."""
    if part.places is not None:
        yield from _joined(*_at_places(store, part.places))
    elif part.units is not None:
        yield from _joined(*_led_to(store.path, part))
    else:
        yield NumberSpan(part.start, part.end)


def _at_places(store: lakelog.Store, places: Sequence[int]) -> tuple[Longs, Longs]:
    """Start and end of records at offsets from an index, which may name deleted records."""
    found: list[tuple[int, int]] = []
    for place in places:
        try:
            found.append((place, place + store.look_up(place).size))
        except (CorruptRecord, OffsetOutOfRange) as error:
            _log.warning("the key index names an offset without a whole record: %s", error)
    both = np.array(found, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _led_to(path: Path, part: LogRange) -> tuple[Longs, Longs]:
    """Start and end of the records of the units, sorted."""
    offsets, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    with extent.queue_files(path) as queues:
        by_name = {each.queue: each for each in queues}
        for topic, queue_id, first, end in part.units or ():
            raw = by_name[topic, queue_id].units(first, end - first)
            raw = raw[extent.real(raw)]
            offsets.append(raw["offset"].astype(np.int64))
            ends.append(offsets[-1] + raw["size"])
    starts, stops = np.concatenate(offsets), np.concatenate(ends)
    inside = (starts >= part.start) & (starts < part.end)
    order = np.argsort(starts[inside], kind="stable")
    return starts[inside][order], stops[inside][order]


def _joined(starts: Longs, ends: Longs) -> Iterator[NumberSpan]:
    """Merge neighbouring records to spans."""
    if not len(starts):
        return
    ends = np.maximum.accumulate(ends)
    far = np.flatnonzero(starts[1:] - ends[:-1] > GAP_BYTES) + 1
    bounds = [0, *far.tolist(), len(starts)]
    for first, behind in pairwise(bounds):
        yield NumberSpan(int(starts[first]), int(ends[behind - 1]))


def rows_in(
    store: lakelog.Store,
    options: ReadOptions,
    name: str,
    part: LogRange,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of ``part`` from an open store, in log order.

    Raises :class:`CorruptLog` at damage, unless that is skipped or collected.

    :param columns: the columns of the rows; by default all columns of the options
    """
    names = names_of(options) if columns is None else columns
    unpack = options.decompress and "body" in names
    tables = Tables(name, names, unpack, lenient=options.corrupt != FAIL)
    yield from joined(_rows(store, options, part, tables))


def _rows(
    store: lakelog.Store, options: ReadOptions, part: LogRange, tables: Tables
) -> Iterator[pa.RecordBatch]:
    wanted = options.wanted
    damages: list[Damage] = []

    def on_damage(damage: Damage) -> None:
        if options.corrupt == FAIL:
            raise CorruptLog(damage)
        if options.corrupt == SKIP:
            _log.warning("%s", damage)
        else:
            damages.append(damage)

    for span in byte_spans(store, part):
        pieces = store.scan_pieces(span.low, span.end)
        for batch in records.record_batches(pieces, span, on_damage):
            yield from _collected(damages, tables, wanted)
            good = wanted.flags(batch)
            if good.any():
                yield tables.of_records(batch if good.all() else batch.take(good))
        yield from _collected(damages, tables, wanted)


def _collected(
    damages: list[Damage], tables: Tables, wanted: RecordCondition
) -> Iterator[pa.RecordBatch]:
    """Rows for damage, with only its place and cause."""
    span = wanted.physical
    found = [each for each in damages if each.offset < span.end and each.end_offset > span.low]
    damages.clear()
    if found:
        yield tables.of_damage(found)


_LARGEST_INT: Final = (1 << 31) - 1
_ROWS: Final = 8192
_BYTES: Final = 4 << 20


@attrs.frozen
class Tables:
    """Makes rows.

    :ivar store: the value of the column ``store``
    :ivar names: the columns, in table order
    :ivar unpack: whether bodies are unpacked
    :ivar lenient: whether a body that cannot be unpacked is returned as stored, instead of an error
    """

    store: str
    names: Sequence[str]
    unpack: bool
    lenient: bool

    def of_records(self, batch: RecordBatch) -> pa.RecordBatch:
        """One row for each record; raises :class:`~lakelog.errors.CorruptRecord`."""
        errors: Mapping[int, CorruptRecord] = {}
        if self.unpack and self.lenient:
            fields, errors = unpacked(batch, self._fields)
        else:
            fields = to_arrow(batch, columns=self._fields, decompress=self.unpack)
        if not errors:
            return self._with_own(fields, pa.nulls(len(batch), pa.string()))
        texts = {row: error.what for row, error in errors.items()}
        return self._with_own(fields, pa.array(map(texts.get, range(len(batch))), pa.string()))

    def of_damage(self, damages: Sequence[Damage]) -> pa.RecordBatch:
        """One row for each damage, with its place, length and cause; other columns are null."""
        count, lengths = len(damages), [each.end_offset - each.offset for each in damages]
        known: dict[str, list[Any]] = {
            "physical_offset": [each.offset for each in damages],
            "store_size": [each if each <= _LARGEST_INT else None for each in lengths],
        }
        arrays = [
            pa.array(known.get(each.name, [None] * count), each.type)
            for each in schema(self._fields)
        ]
        fields = pa.RecordBatch.from_arrays(arrays, names=self._fields)
        return self._with_own(fields, pa.array(map(str, damages), pa.string()))

    @property
    def _fields(self) -> list[str]:
        return [name for name in self.names if name not in ("store", ERROR)]

    def _with_own(self, fields: pa.RecordBatch, errors: pa.Array) -> pa.RecordBatch:
        arrays = [*fields.columns, *([errors] if ERROR in self.names else [])]
        if "store" in self.names:
            arrays.insert(0, pa.repeat(pa.scalar(self.store, pa.string()), len(errors)))
        return pa.RecordBatch.from_arrays(arrays, names=list(self.names))


def joined(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches, as each one costs Spark about a millisecond."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for table in tables:
        held.append(table)
        count, size = count + len(table), size + table.nbytes
        if count >= _ROWS or size >= _BYTES:
            yield from _as_one(held)
            held, count, size = [], 0, 0
    yield from _as_one(held)


def _as_one(tables: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(tables) > 1:
        yield from pa.Table.from_batches(tables).combine_chunks().to_batches()
    else:
        yield from tables
