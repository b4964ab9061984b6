"""Compares a table with the log that landed in it: every row with its record.

Each side is read once. First the compared values of the table's rows are stored on disk by parts of
the log, :data:`PART_BYTES` each: a row takes 56 bytes, far less than in the table, and memory is
bounded. Then the log is read in order, and each part compared. For rows of messages deleted from
the log, only duplicates, wrong checksums of bodies, and gaps are reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import attrs
import numpy as np
import pyarrow as pa

import lakelog
from lakelog.format.record_batch import Damage, RecordBatch
from lakelog_lake.errors import WrongLog
from lakelog_lake.log.records import DamagePolicy, LogSpan, merged, steps, unpacked
from lakelog_lake.log.wanted import Chosen, chosen_rows, coded_topics, is_system_topic
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks.task import first_offset
from lakelog_lake.verify import comparing, landed_table

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


@attrs.define
class LogFacts:
    """Reads the compared values of a log's records.

    :ivar columns: the columns to compare, including the key
    """

    chosen: Chosen
    columns: Sequence[str]
    queues: comparing.Queues
    damages: _Noted = attrs.field(factory=lambda: _Noted(skip=True))

    @property
    def damaged(self) -> tuple[LogSpan, ...]:
        """The damaged ranges, in log order; adjacent ones are one."""
        return merged(self.damages.places)

    def between(self, store: lakelog.Store, span: LogSpan) -> Iterator[comparing.Facts]:
        """Yield the compared values in log order, a few MiB of the log at a time."""
        if span.end <= span.start:
            return
        for batch in self.damages.records(store.scan_pieces(span.start, span.end), span):
            for part in steps(batch, np.arange(len(batch)), _STEP_BYTES):
                rows = self._rows(part)
                if rows is not None:
                    yield comparing.facts_of(rows, self.queues)

    def _rows(self, batch: RecordBatch) -> pa.RecordBatch | None:

        places = chosen_rows(batch, *coded_topics(batch), self.chosen)
        if not len(places):
            return None
        part = batch.take(places)
        return unpacked(part, self.columns)[0]


@attrs.frozen
class VerifyRequest:
    """The parameters of a comparison.

    :ivar store: its identity in the table
    :ivar chosen: the selection of messages that should have landed
    """

    path: Path
    store: str
    table: landed_table.LandedTable
    chosen: Chosen


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

    :ivar columns: the columns of lakelog that were compared
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
    position = landed_table.position_of(asked.table, asked.store)
    columns = comparing.compared(asked.table.columns())
    queues = comparing.Queues()
    with (
        TemporaryDirectory(prefix="lakelog-verify-") as folder,
        lakelog.open(asked.path, mode="read") as store,
    ):
        log = bounds_of(store, position, asked.table.name)
        buckets = Buckets(Path(folder), part_bytes)
        with landed_table.readable(asked.table.name):
            for batch in asked.table.batches(asked.store, columns):
                buckets.add(comparing.facts_of(batch, queues))
        source = LogFacts(_chosen(asked, queues), columns[1:], queues)
        limits = comparing.VerifiableEnds(
            log.low, position.end, landed_table.position_of(asked.table, asked.store).end
        )
        comparison = comparing.Comparison(limits, comparing.has_parsed(asked.table.columns()))
        _compare(comparison, buckets, source, store, log)
    return Verified(asked, position, log, columns, queues, comparison.found, source.damaged)


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


def _compare(  # each is one collaborator
    comparison: comparing.Comparison,
    buckets: Buckets,
    source: LogFacts,
    store: lakelog.Store,
    log: LogBounds,
) -> None:
    waiting: list[comparing.Facts] = []
    current: int | None = None

    def finish(part: int | None) -> None:
        if part is not None:
            _older_parts(comparison, buckets, part)
            comparison.part(np.concatenate(waiting), buckets.take(part))
            waiting.clear()

    span = LogSpan(log.low, min(comparison.limits.end, log.end))
    for facts in source.between(store, span):
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
