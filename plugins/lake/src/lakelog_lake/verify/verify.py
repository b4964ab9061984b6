"""Compares a table with the log that landed in it: every row with its record.

Each side is read once. First the compared values of the table's rows are stored on disk by parts of
the log, :data:`PART_BYTES` each: a row takes 56 bytes, far less than in the table, and memory is
bounded. Then the log is read in order, and each part compared. For rows of messages deleted from
the log, only duplicates, wrong checksums of bodies, and gaps are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakelog
from lakelog.format.record_batch import Damage
from lakelog_lake.bodies.recorded import Parsers, kept
from lakelog_lake.errors import WrongLog
from lakelog_lake.log.records import DamagePolicy, LogSpan, merged, steps, unpacked
from lakelog_lake.log.wanted import Chosen, chosen_rows, coded_topics, is_system_topic
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks.task import ANY_TOPIC, first_offset
from lakelog_lake.verify import comparing, landed_table
from lakelog_lake.verify.comparing import Longs

PART_BYTES: Final = 128 << 20


@attrs.define
class Buckets:
    """The compared values by part.

    :ivar folder: an empty folder for this object only
    :ivar part_bytes: bytes of the log in one part
    :ivar parts: indexes of the parts with rows
    """

    folder: Path
    part_bytes: int = PART_BYTES
    parts: set[int] = attrs.field(factory=set)

    def add(self, facts: comparing.Facts) -> None:
        """Add each row to its part."""
        numbers = self.numbers(facts)
        for part in np.unique(numbers).tolist():
            self.parts.add(part)
            with self._file(part).open("ab") as file:
                file.write(facts[numbers == part].tobytes())

    def numbers(self, facts: comparing.Facts) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The index of each row's part."""
        return np.asarray(facts["at"] // self.part_bytes, np.int64)

    def take(self, part: int) -> comparing.Facts:
        """Return all rows of a part, and remove them."""
        if part not in self.parts:
            return np.zeros(0, comparing.FACT)
        self.parts.remove(part)
        found = np.fromfile(self._file(part), comparing.FACT)
        self._file(part).unlink()
        return found

    def _file(self, part: int) -> Path:
        return self.folder / str(part)


_STEP_BYTES = 8 << 20


@attrs.define
class _Noted(DamagePolicy):
    """Collects the places of damage."""

    places: list[LogSpan] = attrs.field(factory=list)

    def met(self, damage: Damage) -> None:
        """Note bytes that are no record."""
        self.places.append(LogSpan(damage.offset, damage.end_offset))


def log_facts(
    store: lakelog.Store,
    span: LogSpan,
    damages: DamagePolicy,
    chosen: Chosen,
    columns: Sequence[str],
    queues: comparing.Queues,
    again: ParsedAgain,
) -> Iterator[comparing.Facts]:
    """Yield the compared values of a log's records in its order, a few MiB of the log at a time.

    :param columns: the columns to compare, including the key
    :param again: parses bodies again
    """
    read = (*columns, *({"body"} - set(columns)))
    if span.end <= span.start:
        return
    for batch in damages.records(store.scan_pieces(span.start, span.end), span):
        for part in steps(batch, np.arange(len(batch)), _STEP_BYTES):
            places = chosen_rows(part, *coded_topics(part), chosen)
            if len(places):
                rows = unpacked(part.take(places), read)[0]
                yield comparing.facts_of(rows.select(columns), queues, again.expected(rows))


@attrs.frozen(slots=False)
class ParsedAgain:
    """The parsers by which the bodies of a store landed in a table.

    :ivar spans: from which physical offset on which parsers were in use, ascending; ``None`` if
        their file is missing
    :ivar table_columns: all columns of the table
    """

    spans: tuple[tuple[int, Parsers | None], ...]
    table_columns: tuple[str, ...]

    @classmethod
    def of(cls, table: landed_table.LandedTable, position: Position) -> ParsedAgain:
        """Read the files that the position names; raises the errors of reading the table."""
        folder = table.folder() if position.bodies else Path()
        with landed_table.readable(table.name):
            spans = tuple((start, kept(folder, digest)) for start, digest in position.bodies)
        return cls(spans, tuple(table.columns()))

    @cached_property
    def fields(self) -> pa.Schema:
        """The columns that are compared, with their widest types.

        A column that somebody dropped, and that came again with another type, is not compared.
        """
        parsers = [each for _, by_topic in self.spans for each in (by_topic or {}).values()]
        found: dict[str, list[pa.Schema]] = {name: [] for name in self.table_columns}
        for field in (each for parser in parsers if parser is not None for each in parser.fields):
            if field.name in found and field.name != "body":
                found[field.name].append(pa.schema([field]))
        fields = []
        for schemas in found.values():
            with suppress(pa.ArrowException):
                fields += pa.unify_schemas([pa.schema([]), *schemas], promote_options="permissive")
        return pa.schema(fields)

    def expected(self, rows: pa.RecordBatch) -> comparing.Words:
        """Parse bodies; the hash of each row's columns, :data:`.comparing.UNPARSED` if not known.

        :param rows: with ``topic``, ``physical_offset`` and ``body``
        """
        if not self.spans and not comparing.has_parsed(self.table_columns):
            return np.zeros(rows.num_rows, np.uint64)
        found = np.full(rows.num_rows, comparing.UNPARSED)
        starts = np.array([start for start, _ in self.spans], np.int64)
        places = rows.column("physical_offset").cast(pa.int64()).fill_null(-1).to_numpy()
        spans = np.searchsorted(starts, places, side="right")
        for topic in rows.column("topic").unique().drop_null().to_pylist():
            is_topic = pc.equal(rows.column("topic"), topic).fill_null(False)
            for span in np.unique(spans).tolist():
                chosen = np.flatnonzero(is_topic.to_numpy(zero_copy_only=False) & (spans == span))
                self._parse(rows, chosen, topic, span, found)
        return found

    def _parse(
        self,
        rows: pa.RecordBatch,
        chosen: Longs,
        topic: str,
        span: int,
        found: comparing.Words,
    ) -> None:
        by_topic = self.spans[span - 1][1] if span else None
        if by_topic is None:
            return
        if topic not in by_topic and ANY_TOPIC not in by_topic:
            found[chosen] = 0
            return
        parser = by_topic.get(topic, by_topic.get(ANY_TOPIC))
        if parser is None:
            return
        taken = rows.take(pa.array(chosen))
        parsed = parser.parse(taken.column("body"), taken.drop_columns(["body"]))
        found[chosen[parsed.good]] = self.hashed(parsed.columns)

    def hashed(self, columns: pa.RecordBatch) -> comparing.Words:
        """One hash over the compared columns of each row."""
        names = [name for name in self.fields.names if name in columns.schema.names]
        return comparing.of_fields(names, map(columns.column, names), columns.num_rows)


@attrs.frozen
class VerifyRequest:
    """The parameters of a comparison.

    :ivar store: its identity, under which it landed if the user gave it, see :meth:`named`
    :ivar chosen: the selection of messages that should have landed
    :ivar dead: the table's dead letters, which are committed before its own rows
    """

    path: Path
    store: str
    table: landed_table.LandedTable
    chosen: Chosen
    dead: landed_table.LandedTable | None = None

    def named(self) -> VerifyRequest:
        """The same, with the identity under which the log landed."""
        name = landed_table.landed_name(self.path, self.store, [self.table])
        return attrs.evolve(self, store=name)

    def facts(
        self, columns: Sequence[str], queues: comparing.Queues, again: ParsedAgain
    ) -> Iterator[comparing.Facts]:
        """Compared values of both tables, without dead letters behind the table's position.

        :param columns: with the physical offset
        """
        for batch in self.table.batches(self.store, [*columns, *again.fields.names]):
            # a table may have them in another order
            yield comparing.facts_of(batch.select(columns), queues, again.hashed(batch))
        if self.dead is not None:
            end = landed_table.position_of(self.table, self.store).end
            for batch in self.dead.batches(self.store, columns):
                landed = batch.filter(pc.less(batch.column("physical_offset"), end))
                unparsed = np.full(landed.num_rows, comparing.UNPARSED)
                yield comparing.facts_of(landed.select(columns), queues, unparsed)

    def data_files(self) -> list[landed_table.DataFile]:
        """The data files of both tables; raises :class:`~lakelog_lake.errors.NeedsEngine`."""
        tables = [self.table, *([] if self.dead is None else [self.dead])]
        return [file for table in tables for file in table.data_files()]


@attrs.frozen
class LogBounds:
    """The bounds of a log, as physical offsets.

    :ivar low: start of the log
    :ivar end: end of its last whole record
    :ivar problem: the reason why it is not the log that landed; ``None`` if it is
    """

    low: int
    end: int
    problem: str | None = None


@attrs.frozen
class Verified:
    """The result of a comparison.

    :ivar columns: the columns that were compared
    :ivar damaged: damaged ranges of the log, which were not compared
    """

    asked: VerifyRequest
    position: Position
    log: LogBounds
    columns: tuple[str, ...]
    queues: comparing.Queues
    differences: comparing.Differences
    damaged: tuple[LogSpan, ...]

    @property
    def is_clean(self) -> bool:
        """Whether no difference was found."""
        return self.log.problem is None and not self.differences.rows


def verify_here(asked: VerifyRequest, *, part_bytes: int = PART_BYTES) -> Verified:
    """Compare in this process.

    Raises the errors of reading the table, and :class:`~lakelog_lake.errors.NotLanded`.
    """
    asked = asked.named()
    position = landed_table.position_of(asked.table, asked.store)
    columns = comparing.compared(asked.table.columns())
    again = ParsedAgain.of(asked.table, position)
    queues = comparing.Queues()
    with (
        TemporaryDirectory(prefix="lakelog-verify-") as folder,
        lakelog.open(asked.path, mode="read") as store,
    ):
        log = bounds_of(store, position, asked.table.name)
        buckets = Buckets(Path(folder), part_bytes)
        with landed_table.readable(asked.table.name):
            for rows in asked.facts(columns, queues, again):
                buckets.add(rows)
        span, damages = LogSpan(log.low, min(position.end, log.end)), _Noted(skip=True)
        chosen = _chosen(asked, queues)
        facts = log_facts(store, span, damages, chosen, columns[1:], queues, again)
        limits = comparing.VerifiableEnds(
            log.low, position.end, landed_table.position_of(asked.table, asked.store).end
        )
        comparison = comparing.Comparison(limits, comparing.has_parsed(asked.table.columns()))
        _compare(comparison, buckets, facts)
    damaged = merged(damages.places)
    columns = (*columns, *again.fields.names)
    return Verified(asked, position, log, columns, queues, comparison.found, damaged)


def bounds_of(store: lakelog.Store, position: Position, table: str) -> LogBounds:
    """The bounds of the log; ``problem`` is set if it is not the log that landed."""
    low, end = store.min_offset, store.max_offset
    try:
        first_offset(store, position, table, accept_gaps=True)
    except WrongLog as error:
        return LogBounds(low, end, str(error))
    if end < position.end:
        why = f"{store.path} ends at offset {end}, but {table} has rows up to {position.end}"
        return LogBounds(low, end, f"{why}: the log was cut, or restored from an older copy")
    return LogBounds(low, end)


def _chosen(asked: VerifyRequest, queues: comparing.Queues) -> Chosen:
    """The selection, with RocketMQ's own topics if the table has any of them."""
    if asked.chosen.topics is None and any(is_system_topic(topic) for topic, _ in queues.names):
        return attrs.evolve(asked.chosen, system_topics=True)
    return asked.chosen


def _compare(
    comparison: comparing.Comparison, buckets: Buckets, log: Iterable[comparing.Facts]
) -> None:
    waiting: list[comparing.Facts] = []
    current: int | None = None

    def finish(part: int | None) -> None:
        if part is not None:
            _older_parts(comparison, buckets, part)
            comparison.part(np.concatenate(waiting), buckets.take(part))
            waiting.clear()

    for facts in log:
        numbers = buckets.numbers(facts)
        for rows in np.split(facts, np.flatnonzero(np.diff(numbers)) + 1):
            part = int(rows["at"][0]) // buckets.part_bytes
            if part != current:
                finish(current)
                current = part
            waiting.append(rows)
    finish(current)
    _older_parts(comparison, buckets, None)


def _older_parts(comparison: comparing.Comparison, buckets: Buckets, before: int | None) -> None:
    """Compare the parts before ``before`` for which the log has no records."""
    for part in sorted(buckets.parts):
        if before is None or part < before:
            comparison.part(np.zeros(0, comparing.FACT), buckets.take(part))
