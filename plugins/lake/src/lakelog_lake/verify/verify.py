"""Compares a table with the log that landed in it: every row with its record.

Each side is read once. First the compared values of the table's rows are stored on disk by parts of
the log, :data:`PART_BYTES` each: a row takes 48 bytes, far less than in the table, and memory is
bounded. Then the log is read in order, and each part compared. For rows of messages deleted from
the log, only duplicates, wrong checksums of bodies, and gaps are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakelog
from lakelog.format.record_batch import Damage
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


def log_facts(
    store: lakelog.Store,
    span: LogSpan,
    damages: DamagePolicy,
    chosen: Chosen,
    columns: Sequence[str],
    queues: comparing.Queues,
) -> Iterator[comparing.Facts]:
    """Yield the compared values of a log's records in its order, a few MiB of the log at a time.

    :param columns: the columns to compare, including the key
    """
    if span.end <= span.start:
        return
    for batch in damages.records(store.scan_pieces(span.start, span.end), span):
        for part in steps(batch, np.arange(len(batch)), _STEP_BYTES):
            places = chosen_rows(part, *coded_topics(part), chosen)
            if len(places):
                rows = unpacked(part.take(places), columns)[0]
                yield comparing.facts_of(rows, queues)


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

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of both tables; dead letters behind the position of the table are left out.

        :param columns: with the physical offset
        """
        for batch in self.table.batches(self.store, columns):
            yield batch.select(columns)  # a table may have them in another order
        if self.dead is not None:
            end = landed_table.position_of(self.table, self.store).end
            for batch in self.dead.batches(self.store, columns):
                kept = batch.filter(pc.less(batch.column("physical_offset"), end))
                yield kept.select(columns)

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
    asked = asked.named()
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
            for batch in asked.batches(columns):
                buckets.add(comparing.facts_of(batch, queues))
        span, damages = LogSpan(log.low, min(position.end, log.end)), _Noted(skip=True)
        facts = log_facts(store, span, damages, _chosen(asked, queues), columns[1:], queues)
        limits = comparing.VerifiableEnds(
            log.low, position.end, landed_table.position_of(asked.table, asked.store).end
        )
        comparison = comparing.Comparison(limits, comparing.has_parsed(asked.table.columns()))
        _compare(comparison, buckets, facts)
    damaged = merged(damages.places)
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
