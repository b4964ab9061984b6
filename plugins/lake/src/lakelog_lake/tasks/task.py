"""Tasks: which ranges of a log may land next, and how one is written to files for each table.

A range begins directly behind the landed part, is durable, and is cut between records. A task reads
its range once. The records become columns, with bodies unpacked and optionally parsed. Their rows
are grouped by the partition of each table, in the order of queues inside of each group. The rows of
consecutive tasks go to the same files.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import repeat
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import lakelog
from lakelog.errors import LakelogError
from lakelog.format.checksum import Fingerprint
from lakelog.format.layout import COMMITLOG_DIR, CONSUMEQUEUE_DIR, INNER_BATCH
from lakelog.format.record_batch import Blank, Damage, RecordBatch
from lakelog_lake.bodies.base import BodyParser, Parsed
from lakelog_lake.errors import BadParser, RetentionGap, WrongLog
from lakelog_lake.log.extent import MANY, DurableEnd, RecordStarts
from lakelog_lake.log.records import ERROR, NAMES, DamagePolicy, LogSpan, one_batch, steps, unpacked
from lakelog_lake.log.wanted import EVERYTHING, Chosen, chosen_rows, coded_topics
from lakelog_lake.tables import data_files, position, remote, settings, shape
from lakelog_lake.tables.position import UNCHECKED, Position
from lakelog_lake.tables.remote import sync

FILE_BYTES: Final = 128 << 20
_MOST_TOPICS: Final = 100
"""Most queues to search for cuts; for more, scanning the log is as fast."""
_MOST_LONGER: Final = 8
"""A range may exceed the requested size by this fraction, to end at a known record start."""


@attrs.frozen
class TaskLimits:
    """Limits of passes and tasks, in bytes of the log; a single record may be larger.

    :ivar pass_bytes: most bytes of one pass; the more, the larger are the files of a backlog
    :ivar task_bytes: most bytes of one task, which has them in memory
    :ivar file_bytes: approximate largest size of a data file
    :ivar at_once: number of concurrent tasks; a pass is cut into ranges of equal size for them
    """

    pass_bytes: int = 2048 << 20
    task_bytes: int = 56 << 20
    file_bytes: int = FILE_BYTES
    at_once: int = 1

    def cuts(self, size: int) -> list[int]:
        """Approximate ends of the parts of a pass over ``size`` bytes, from its start.

        >>> TaskLimits(task_bytes=100, at_once=2).cuts(210)
        [52, 105, 157, 210]
        """
        count = -(-size // self.task_bytes)
        if count > 1 and self.at_once <= 2 * count:  # more parts would be too small
            count = -(-count // self.at_once) * self.at_once
        return [size * number // count for number in range(1, count + 1)]


def first_offset(
    store: lakelog.Store, position: Position | None, table: str, *, accept_gaps: bool = False
) -> int:
    """The start of the next range, after checking that the log is the one that has landed.

    Raises :class:`WrongLog`, and :class:`RetentionGap` if messages were deleted before they landed.
    """
    if position is None:
        return store.min_offset
    minimum = _first_before(store, position.end)
    if position.last is not None:
        _check_last(store, position, position.last, table)
    if minimum > position.end:
        if not accept_gaps:
            raise RetentionGap(store.path, table, position.end, minimum)
        return minimum
    return position.end


def _first_before(store: lakelog.Store, offset: int) -> int:
    """The first readable byte; asks an archive only if the log begins behind ``offset``."""
    return store.min_offset if store.min_offset <= offset else store.oldest_offset


def _check_last(store: lakelog.Store, position: Position, last: Fingerprint, table: str) -> None:
    """Raise :class:`WrongLog` unless the log has the record ``last``, or retention deleted it."""
    if _first_before(store, last.offset) > last.offset:
        return
    behind = last.offset + last.size
    found = record_at(store, last.offset, behind)
    if found is None:
        raise WrongLog(
            store.path,
            table,
            f"the last record that landed stood at offset {last.offset} to {behind}, and no whole "
            f"record is there (the table holds what is before {position.end})",
        )
    record, stored_ms = found
    if record.size != last.size or last.crc not in (record.crc, UNCHECKED):
        raise WrongLog(
            store.path,
            table,
            f"the last record that landed, at offset {last.offset}, has {last.size} bytes"
            f"{'' if last.crc == UNCHECKED else f' with the checksum {last.crc:08x}'}, and the one "
            f"there has {record.size} with {record.crc:08x}",
        )
    if position.stored_ms not in (None, stored_ms):
        raise WrongLog(
            store.path,
            table,
            f"the last row, at offset {last.offset}, has the store time {position.stored_ms}, and "
            f"the record there {stored_ms}, in ms since 1970",
        )


def record_at(store: lakelog.Store, offset: int, end: int) -> tuple[Fingerprint, int] | None:
    """The record that starts at ``offset``, and its store time in ms; ``None`` without one."""
    for piece in store.scan_pieces(offset, end):
        if isinstance(piece, RecordBatch) and piece.base_offset + int(piece.starts[0]) == offset:
            record = piece.record(0)
            found = Fingerprint(offset, len(record), zlib.crc32(record))
            return found, int(piece.decoded[0].store_timestamp_ms)
        break
    return None


def next_spans(
    store: lakelog.Store, start: int, bounds: TaskLimits, durable: DurableEnd | None = None
) -> list[LogSpan]:
    """The durable ranges from ``start`` on, cut between records, one per task.

    If the durable end is not known, the bytes of these ranges are synced here.

    :param durable: the cached durable end
    """
    flushed = (durable or DurableEnd()).behind(store, start)
    if flushed is not None:
        return list(_cut_to(store, start, flushed, bounds)) if flushed > start else []
    spans = list(_cut(store, start, bounds))
    if spans:
        sync_segments(store.path, spans[0].start, spans[-1].end)
    return spans


def _cut_to(store: lakelog.Store, start: int, end: int, bounds: TaskLimits) -> Iterator[LogSpan]:
    """Ranges from ``start`` up to the last record end at or before ``end``.

    Cuts are at record starts named by queues, or else found by scanning.
    """
    cuts = [start + each for each in bounds.cuts(min(end - start, bounds.pass_bytes))]
    at = start
    with _marks(store) if cuts[0] < end else nullcontext() as marks:
        for target in cuts:
            if target > at:  # otherwise a record spans the cut
                found = end if target >= end else _known_start(marks, at, target, end)
                found = found or _walked(store, at, target, end)
                yield LogSpan(at, found)
                at = found


def _marks(store: lakelog.Store) -> AbstractContextManager[RecordStarts | None]:
    folder = store.path / CONSUMEQUEUE_DIR
    if not folder.is_dir() or len(os.listdir(folder)) > _MOST_TOPICS:
        return nullcontext()
    return RecordStarts.of(store)


def _known_start(marks: RecordStarts | None, at: int, target: int, end: int) -> int | None:
    """The first record not far behind ``target`` that a queue names, if there is one."""
    if marks is None:
        return None
    limit = min(end, target + max(1, (target - at) // _MOST_LONGER))
    return marks.behind(target, limit) or marks.behind(target, limit, MANY)


def _walked(store: lakelog.Store, at: int, target: int, end: int) -> int:
    """The first record end at or behind ``target``, found by scanning from ``at``."""
    for piece in store.scan_pieces(at, end, verify=False):
        if piece.end_offset >= target:
            return piece.end_offset
    return end


def _cut(store: lakelog.Store, start: int, bounds: TaskLimits) -> Iterator[LogSpan]:
    """Ranges from ``start`` up to the last whole record; the bytes behind it may be incomplete.

    A blank behind damage does not count: recovery cuts both if no message follows.
    """
    begun = at = start
    is_torn = False
    for piece in store.scan_pieces(start):
        is_torn = isinstance(piece, Damage) or (is_torn and isinstance(piece, Blank))
        if is_torn:
            continue  # counts only if a whole record follows
        at = piece.end_offset
        if at - begun >= bounds.task_bytes:
            yield LogSpan(begun, at)
            begun = at
        if at - start >= bounds.pass_bytes:
            break
    if at > begun:
        yield LogSpan(begun, at)


def sync_segments(store_path: Path, start: int, end: int) -> None:
    """Sync the log from ``start`` to ``end``, without changing a byte of it."""
    folder = store_path / COMMITLOG_DIR
    for path in sorted(each for each in folder.iterdir() if each.name.isdigit()):
        if int(path.name) < end and int(path.name) + path.stat().st_size > start:
            sync(path)
    sync(folder)


_LAST_MS: Final = ((1 << 63) - 1) // 1000  # largest ms that fits in a column of µs


@attrs.frozen
class ChosenRows:
    """The records of a batch that become rows of any table.

    :ivar topics: the distinct topics of the batch
    :ivar codes: for each record the index of its topic
    :ivar order: indices in the batch, sorted by topic, queue and offset
    """

    batch: RecordBatch
    store: str
    topics: Sequence[str]
    codes: NDArray[np.int64]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, batch: RecordBatch, store: str, chosen: Chosen) -> ChosenRows:
        """Select from ``batch``."""
        topics, codes = coded_topics(batch)
        rows = chosen_rows(batch, topics, codes, chosen)
        keys = (batch.queue_offsets, batch.queue_ids, codes)
        order = rows[np.lexsort(tuple(each[rows] for each in keys))]
        return cls(batch, store, topics, codes, order)

    def by_topic(self) -> dict[str, NDArray[np.int64]]:
        """The rows of each topic."""
        return {self.topics[self.codes[rows[0]]]: rows for rows in runs(self.order, self.codes)}

    def groups(
        self, rows: NDArray[np.int64], partition: Sequence[str]
    ) -> Iterator[tuple[dict[str, int | str], NDArray[np.int64]]]:
        """Split ``rows``, a subsequence of ``order``, by partition.

        Yields the values of the partition by key, and its rows, sorted by topic, queue and offset.
        """
        columns = [
            self.codes if key == shape.TOPIC else self._times(key)
            for key in partition
            if key != shape.STORE
        ]
        if columns:
            rows = rows[np.lexsort(tuple(each[rows] for each in reversed(columns)))]
        for part in runs(rows, *columns):
            yield {key: self._value(key, int(part[0])) for key in partition}, part

    def _times(self, key: str) -> NDArray[np.int64]:
        found: NDArray[np.int64] = (
            np.clip(self.batch.store_timestamps_ms, -_LAST_MS, _LAST_MS) // shape.TIMES[key]
        )
        return found

    def _value(self, key: str, row: int) -> int | str:
        if key == shape.STORE:
            return self.store
        if key == shape.TOPIC:
            return str(self.topics[self.codes[row]])
        return int(self._times(key)[row])

    def next_offsets(self, rows: NDArray[np.int64]) -> position.QueueEnds:
        """The offset behind the last row of each queue; ``rows`` is a subsequence of ``order``."""
        ends: dict[str, dict[int, int]] = {}
        for queue in runs(rows, self.codes, self.batch.queue_ids):
            at = int(queue[-1])
            queues = ends.setdefault(self.topics[self.codes[at]], {})
            queues[int(self.batch.queue_ids[at])] = int(self.batch.queue_offsets[at]) + self._takes(
                at
            )
        return ends

    def _takes(self, at: int) -> int:
        """The number of queue offsets that a record takes."""
        if not int(self.batch.sys_flags[at]) & INNER_BATCH:
            return 1
        stated = self.batch[at : at + 1].properties[0].get("INNER_NUM", "1")
        return int(stated) if stated.isdigit() else 1


def runs(rows: NDArray[np.int64], *columns: NDArray[Any]) -> Iterator[NDArray[np.int64]]:
    """Split ``rows`` where the value of a column changes."""
    if len(rows):
        changes = np.zeros(len(rows) - 1, np.bool_)
        for column in columns:
            changes |= np.diff(column[rows]) != 0
        yield from np.split(rows, np.flatnonzero(changes) + 1)


_NAMES: Final = NAMES[1:]


@attrs.define
class Rejects:
    """Rows whose bodies do not parse, with their errors.

    :ivar from_offset: records before this physical offset are ignored
    """

    from_offset: int
    errors: dict[int, str] = attrs.field(factory=dict)

    def add(self, offsets: NDArray[np.int64], errors: Iterable[object]) -> None:
        """Add the rows at physical ``offsets``, each with its error."""
        for offset, error in zip(offsets.tolist(), errors, strict=True):
            if offset >= self.from_offset:
                self.errors[offset] = str(error)


def _check(parser: BodyParser, parsed: Parsed, rows: int) -> None:
    good = int(parsed.good.sum())
    expected = (rows, good, rows - good, parser.fields.names)
    found = (
        len(parsed.good),
        parsed.columns.num_rows,
        len(parsed.errors),
        parsed.columns.schema.names,
    )
    if found != expected:
        raise BadParser(
            f"{parser!r} gave (flags, rows, errors, columns) {found} for {expected}: it violates "
            "the contract of lakelog_lake.bodies.base"
        )


def _allowed(batch: pa.RecordBatch, layout: shape.Layout, rejects: Rejects) -> pa.RecordBatch:
    """``batch`` without the rows that the table does not allow, which become dead letters."""
    places = batch.column("physical_offset").to_numpy()
    good = np.ones(batch.num_rows, np.bool_)
    for column, wrong in shape.refused(batch, layout):
        rejects.add(places[wrong], repeat(f"{column} must not be null", int(wrong.sum())))
        good &= ~wrong
    return batch if good.all() else batch.filter(pa.array(good))


_STEP_BYTES: Final = 8 << 20
ANY_TOPIC: Final = "*"
"""A topic key that stands for all topics that are not named."""


@attrs.frozen
class Outlet:
    """The part of a task for one table.

    :ivar number: number of the table in the results
    :ivar folder: existing folder for the files
    :ivar layout: columns and partitions of the files
    :ivar from_offset: records before this physical offset have landed in the table
    :ivar topics: the topics of the table; ``None`` for all
    :ivar parsers: body parsers by topic
    :ivar dead_letters: number of the outlet for bodies that do not parse
    :ivar compression: compression of the files
    """

    number: int
    folder: remote.Folder
    layout: shape.Layout
    from_offset: int = 0
    topics: frozenset[str] | None = None
    parsers: Mapping[str, BodyParser] = attrs.field(factory=dict)
    dead_letters: int | None = None
    compression: settings.ParquetCompression = settings.ParquetCompression.AUTO

    def parser(self, topic: str) -> BodyParser | None:
        """The parser for the bodies of ``topic``."""
        return self.parsers.get(topic) or self.parsers.get(ANY_TOPIC)


@attrs.frozen
class LandingSource:
    """A store, and the selection of its messages that lands.

    :ivar store: its identity in tables
    :ivar skip_damage: whether to skip damage; otherwise a pass raises an error at it
    :ivar accept_gaps: whether to continue where messages were deleted before they landed
    """

    path: Path
    store: str
    skip_damage: bool = False
    chosen: Chosen = EVERYTHING
    accept_gaps: bool = False


@attrs.frozen
class Task:
    """The work of one process.

    :ivar outlets: one for each table, including tables of dead letters
    :ivar file_bytes: approximate largest size of a data file
    """

    source: LandingSource
    span: LogSpan
    outlets: tuple[Outlet, ...]
    file_bytes: int = FILE_BYTES


@attrs.frozen
class TablePart:
    """The result of a task for one table.

    :ivar next_offsets: the queue offset behind the rows of each queue
    """

    files: tuple[data_files.FileFacts, ...] = ()
    next_offsets: position.QueueEnds = attrs.field(factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(each.rows for each in self.files)


@attrs.frozen
class Written:
    """The result of a task.

    :ivar parts: the result for each table, by the number of its outlet; the last of tasks that
        share their files has all of them
    :ivar last: the last record of the range, whether or not it became a row
    :ivar damaged: damaged ranges of the log, and bodies, that were skipped
    :ivar strays: topics with rows but without an outlet, each with its first physical offset
    """

    parts: Mapping[int, TablePart] = attrs.field(factory=dict)
    last: Fingerprint | None = None
    damaged: int = 0
    strays: Mapping[str, int] = attrs.field(factory=dict)

    def with_files(self, files: Mapping[int, Sequence[data_files.FileFacts]]) -> Written:
        """The same with the files of each table."""
        parts = dict(self.parts)
        for number, found in files.items():
            parts[number] = attrs.evolve(parts.get(number, TablePart()), files=tuple(found))
        return attrs.evolve(self, parts=parts)


def _records(task: Task, store: lakelog.Store | None) -> tuple[RecordBatch | None, DamagePolicy]:
    """Read the records; if an open store has damage, read again from a newly opened one.

    The directory may have been removed or replaced since the store was opened.
    """
    if store is not None:
        with suppress(LakelogError):
            found = _scanned(task, store)
            if not found[1].count:
                return found
    with lakelog.open(task.source.path, mode="read") as opened:
        return _scanned(task, opened)


def _scanned(task: Task, store: lakelog.Store) -> tuple[RecordBatch | None, DamagePolicy]:
    damages = DamagePolicy(skip=task.source.skip_damage)
    pieces = store.scan_pieces(task.span.start, task.span.end)
    return one_batch(damages.records(pieces, task.span), task.span), damages


def write(
    task: Task, files: data_files.PartitionFiles, store: lakelog.Store | None = None
) -> Written:
    """Run ``task``; its rows are added to ``files``, and its result has no files.

    :param files: shared by the tasks of consecutive ranges, in their order
    :param store: the store, if it is open

    Raises :class:`~lakelog_lake.errors.CorruptLog` at damage.
    """
    batch, damages = _records(task, store)
    if batch is None:
        return Written(damaged=damages.count)
    work = _Work.of(task, batch, damages, files)
    parts = dict(work.parts())
    record = batch.record(len(batch) - 1)
    last = Fingerprint(int(batch.physical_offsets[-1]), len(record), zlib.crc32(record))
    return Written(parts, last, damages.count, work.strays())


_ColumnsOf: TypeAlias = "Callable[[Outlet, NDArray[np.int64]], Iterator[pa.RecordBatch]]"


@attrs.frozen
class _Work:
    """A task with its records.

    :ivar rejects: rows that do not parse, by the number of the outlet that takes them
    """

    task: Task
    rows: ChosenRows
    by_topic: Mapping[str, NDArray[np.int64]]
    rejects: Mapping[int, Rejects]
    damages: DamagePolicy
    files: data_files.PartitionFiles

    @classmethod
    def of(
        cls,
        task: Task,
        batch: RecordBatch,
        damages: DamagePolicy,
        files: data_files.PartitionFiles,
    ) -> _Work:
        rows = ChosenRows.of(batch, task.source.store, task.source.chosen)
        takers = {each.dead_letters for each in task.outlets}
        rejects = {
            each.number: Rejects(each.from_offset) for each in task.outlets if each.number in takers
        }
        return cls(task, rows, rows.by_topic(), rejects, damages, files)

    def strays(self) -> dict[str, int]:
        """Topics that no outlet takes."""
        if any(each.topics is None for each in self.task.outlets):
            return {}
        taken = frozenset[str]().union(*(each.topics or () for each in self.task.outlets))
        places = self.rows.batch.physical_offsets
        return {
            topic: int(places[rows].min())
            for topic, rows in self.by_topic.items()
            if topic not in taken
        }

    def parts(self) -> Iterator[tuple[int, TablePart]]:
        """Yield the part of each outlet; dead letters are complete after all others."""
        for outlet in self.task.outlets:
            if outlet.number not in self.rejects:
                yield outlet.number, self._of_messages(outlet)
        for outlet in self.task.outlets:
            if outlet.number in self.rejects:
                yield outlet.number, self._of_dead_letters(outlet)

    def _of_messages(self, outlet: Outlet) -> TablePart:
        rows = self._of_topics(outlet)
        places = self.rows.batch.physical_offsets[rows]
        if outlet.dead_letters is not None:  # its table may lag behind: parse landed rows again
            first = self.rejects[outlet.dead_letters].from_offset
            again = rows[(places >= first) & (places < outlet.from_offset)]
            deque(self._columns(outlet, again), maxlen=0)
        return self._written(outlet, rows[places >= outlet.from_offset], self._columns)

    def _of_topics(self, outlet: Outlet) -> NDArray[np.int64]:
        if outlet.topics is None:
            return self.rows.order
        found = [self.by_topic[each] for each in sorted(outlet.topics) if each in self.by_topic]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _of_dead_letters(self, outlet: Outlet) -> TablePart:
        errors = self.rejects[outlet.number].errors
        places = self.rows.batch.physical_offsets[self.rows.order]
        bad = np.fromiter(errors, np.int64, len(errors))
        rows = self.rows.order[np.isin(places, bad)]
        return self._written(outlet, rows, self._with_errors)

    def _written(self, outlet: Outlet, rows: NDArray[np.int64], columns: _ColumnsOf) -> TablePart:
        prefix, compression = f"{self.task.span.start:020d}", outlet.compression
        size, told = self.task.file_bytes, outlet.layout.files
        level = None
        if compression is settings.ParquetCompression.AUTO:
            compression, level = told.compression, told.level
        place = data_files.FilePlacement(
            outlet.folder,
            outlet.layout,
            self.task.source.store,
            prefix,
            size if size != FILE_BYTES else told.file_bytes or size,
            compression,
            level,
        )
        for values, part in self.rows.groups(rows, outlet.layout.partition):
            self.files.add(outlet.number, place, values, columns(outlet, part))
        return TablePart(next_offsets=self.rows.next_offsets(rows))

    def _columns(self, outlet: Outlet, rows: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """The columns of messages; collects bodies that do not parse in the rejects."""
        if outlet.dead_letters is None:
            yield from self._raw(rows)
            return
        rejects = self.rejects[outlet.dead_letters]
        for part in runs(rows, self.rows.codes):
            parser = outlet.parser(self.rows.topics[self.rows.codes[part[0]]])
            batches = self._raw(part) if parser is None else self._parsed(part, parser, rejects)
            for batch in batches:
                yield _allowed(batch, outlet.layout, rejects)

    def _steps(self, rows: NDArray[np.int64]) -> Iterator[RecordBatch]:
        return steps(self.rows.batch, rows, min(_STEP_BYTES, self.task.file_bytes))

    def _raw(self, rows: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in steps; bodies that cannot be unpacked are returned as stored.

        Raises :class:`~lakelog_lake.errors.CorruptBody` for such a body if damage is not skipped.
        """
        for part in self._steps(rows):
            columns, errors = unpacked(part, _NAMES)
            self.damages.bodies(errors)
            yield columns

    def _parsed(
        self, rows: NDArray[np.int64], parser: BodyParser, rejects: Rejects
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows that parse, in steps, with the parser's columns instead of ``body``.

        A body that cannot be unpacked counts as not parsed, without an error. Raises
        :class:`~lakelog_lake.errors.BadParser` for a parser that violates its contract.
        """
        for part in self._steps(rows):
            columns, errors = unpacked(part, _NAMES)
            if errors:
                rejects.add(part.physical_offsets[list(errors)], errors.values())
                columns = columns.filter(pa.array(~np.isin(np.arange(len(part)), list(errors))))
            if not columns.num_rows:
                continue
            rest = columns.drop_columns([shape.BODY])
            parsed = parser.parse(columns.column(shape.BODY), rest)
            _check(parser, parsed, columns.num_rows)
            if not parsed.good.all():
                places = rest.column("physical_offset").to_numpy()
                rejects.add(places[~parsed.good], parsed.errors)
                rest = rest.filter(pa.array(parsed.good))
            names = [*rest.schema.names, *parsed.columns.schema.names]
            yield pa.RecordBatch.from_arrays([*rest.columns, *parsed.columns.columns], names=names)

    def _with_errors(self, outlet: Outlet, rows: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:

        errors = self.rejects[outlet.number].errors
        for part in self._steps(rows):
            columns, _ = unpacked(part, _NAMES)  # also of bodies that cannot be unpacked
            why = [errors[each] for each in columns.column("physical_offset").to_pylist()]
            yield columns.append_column(ERROR, pa.array(why, pa.string()))
