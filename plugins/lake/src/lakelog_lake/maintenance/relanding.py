"""Lands dead letters again with a corrected schema.

Rows are read from the table of dead letters, parsed, and added to the main table. A second commit
removes them from the dead letters. The first commit requires the version of the main table in which
the rows were looked up. So neither a kill between the two commits nor a concurrent run of the same
command loses or duplicates a row. Dead letters of ranges that the main table does not have yet are
not touched. Positions keep their values and commit numbers, so a dispatcher can run meanwhile.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lakelog.format.layout import COMPRESSED
from lakelog_lake.bodies.base import BodyParser
from lakelog_lake.errors import Conflict, NotLanded, TableMaintenanceError, TooBusy
from lakelog_lake.landing.committing import table_errors
from lakelog_lake.landing.targets import TableSpec, Target, TopicTables
from lakelog_lake.maintenance.rewind import RowsAt, take_out
from lakelog_lake.tables import data_files
from lakelog_lake.tables.remote import sync
from lakelog_lake.tables.shape import BODY, STORE, TIMES, TOPIC, dead_letter_columns, file_schema
from lakelog_lake.tasks.ranges import FILE_BYTES
from lakelog_lake.tasks.task import ANY_TOPIC
from lakelog_lake.verify.landed_table import DeltaRows, LandedTable
from lakelog_lake.verify.open import OpenTable, all_opened, readable, stores_in

_TRIES: Final = 5
_HELD_BYTES: Final = 64 << 20
_PLACE: Final = "physical_offset"


@attrs.frozen
class Relanded:
    """The result for the dead letters of one table.

    :ivar landed: number of rows added to the table
    :ivar taken_out: number of rows removed from the dead letters
    :ivar left: number of dead letters that remain
    """

    table: str
    landed: int
    taken_out: int
    left: int


def reland(spec: TableSpec) -> Iterator[Relanded]:
    """Land dead letters that parse now, table by table.

    Raises :class:`~lakelog_lake.errors.TableMaintenanceError`, and the errors of changing the
    tables' columns.
    """
    for opened in all_opened(spec.to, spec.table, spec.dead_letters, spec.storage):
        if opened.dead_letters is not None:
            yield _of_one(spec, opened, opened.dead_letters)


def _of_one(spec: TableSpec, opened: OpenTable, dead: LandedTable) -> Relanded:
    if isinstance(dead, DeltaRows) and not isinstance(dead.sink.folder, Path):
        raise TableMaintenanceError(
            f"{dead.name} is in an object store, where removing rows from a Delta table is not "
            "supported yet; nothing was changed"
        )
    with readable(dead.name):
        stores = stores_in(dead)
    landed = taken_out = left = 0
    target = TopicTables.of(spec).target(opened.topic) if stores else None
    for store in sorted(stores):
        assert target is not None  # for the type checker
        one = _Store(opened.table, dead, target, store)
        landed += one.land()
        gone, rest = one.take_out()
        taken_out, left = taken_out + gone, left + rest
    return Relanded(opened.table.name, landed, taken_out, left)


@attrs.frozen
class _Store:
    """The dead letters of one store in one table."""

    table: LandedTable
    dead: LandedTable
    target: Target
    store: str

    def land(self) -> int:
        """Land the rows that parse; return their number. Raises ``TooBusy``."""
        sink = self.target.sink
        for _ in range(_TRIES):
            with table_errors(sink.name):
                head = sink.head(self.store)
            if head.position is None:
                return 0  # its first range has not landed yet
            files = self._written(self._in_both(), head.position.end)
            if not files:
                return 0
            try:
                with table_errors(sink.name):
                    sink.commit(head, self.store, files, head.position)
            except Conflict:  # also after a commit whose answer was lost: read the table again
                continue
            return sum(each.rows for each in files)
        raise TooBusy(f"{sink.name}: others changed it in each of {_TRIES} tries; try again")

    def take_out(self) -> tuple[int, int]:
        """Remove landed dead letters; return how many were removed and how many are left."""
        for _ in range(_TRIES):
            before = self.dead.position(self.store)
            places = self._in_both()
            if before is None:
                raise NotLanded(self.dead.name, self.store, set())
            if not len(places):
                return 0, len(self._dead_places())
            try:
                take_out(self.dead, self.store, RowsAt(tuple(places.tolist())), before, before)
            except Conflict:
                continue
            return len(places), len(self._dead_places())
        raise TooBusy(
            f"{self.dead.name}: others changed it in each of {_TRIES} tries; try again, "
            "to remove the dead letters that have landed"
        )

    def _dead_places(self) -> NDArray[np.int64]:
        return _places(self.dead, self.store)

    def _in_both(self) -> NDArray[np.int64]:
        """The physical offsets of records that are in both tables."""
        dead = self._dead_places()
        return dead[np.isin(dead, _places(self.table, self.store))]

    def _written(self, done: NDArray[np.int64], end: int) -> list[data_files.FileFacts]:
        """Write files of all rows that parse, except those that have landed or have yet to land."""
        files: list[data_files.FileFacts] = []
        held: list[pa.Table] = []
        try:
            for rows in self._parsed(done, end):
                held.append(rows)
                if sum(each.nbytes for each in held) >= _HELD_BYTES:
                    files.extend(self._files(held))
                    held = []
            files.extend(self._files(held))
        except BaseException:
            data_files.discard(files)
            raise
        if files:
            with data_files.writing(self.target.sink.folder):
                sync(self.target.sink.folder)
        return files

    def _parsed(self, done: NDArray[np.int64], end: int) -> Iterator[pa.Table]:

        columns = dead_letter_columns()
        with readable(self.dead.name):
            for batch in self.dead.batches(self.store, columns.names):
                places = batch.column(_PLACE).to_numpy()
                waits = (places < end) & ~np.isin(places, done)
                rows = pa.Table.from_batches([batch]).filter(pa.array(waits)).cast(columns)
                for topic in rows[TOPIC].unique().to_pylist():
                    parser = self.target.parsers.get(topic) or self.target.parsers.get(ANY_TOPIC)
                    of_topic = _of(rows, TOPIC, topic)
                    if parser is not None:
                        yield _good(parser, of_topic.filter(pa.array(_is_unpacked(of_topic))))

    def _files(self, held: Sequence[pa.Table]) -> Iterator[data_files.FileFacts]:

        layout = self.target.sink.layout
        schema = file_schema(layout)
        prefix = f"relanded-{uuid4().hex[:8]}"
        place = data_files.FilePlacement(
            self.target.sink.folder, schema, self.store, prefix, FILE_BYTES, layout.is_hidden
        )
        if not held:
            return
        rows = pa.concat_tables(held, promote_options="default")
        order = [(TOPIC, "ascending"), ("queue_id", "ascending"), ("queue_offset", "ascending")]
        for values, part in _groups(rows.sort_by(order), layout.partition, self.store):
            yield from data_files.write_files(place, values, part.combine_chunks().to_batches())


def _places(table: LandedTable, store: str) -> NDArray[np.int64]:
    with readable(table.name):
        found = [each.column(_PLACE).to_numpy() for each in table.batches(store, [STORE, _PLACE])]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _is_unpacked(rows: pa.Table) -> NDArray[np.bool_]:
    """Whether each body was unpacked; bodies that cannot be are stored as they are."""
    facts = zip(*(rows[name].to_pylist() for name in ("sys_flag", "body_crc", BODY)), strict=True)
    is_stored = (
        bool(flag & COMPRESSED) and zlib.crc32(body) == crc % (1 << 32) for flag, crc, body in facts
    )
    return np.fromiter((not each for each in is_stored), np.bool_, rows.num_rows)


def _good(parser: BodyParser, rows: pa.Table) -> pa.Table:
    """The rows that parse, with the parser's columns instead of the body."""
    rest = rows.drop_columns([BODY, "error"])
    bodies = rows[BODY].combine_chunks()
    whole = rest.combine_chunks().to_batches()
    if not whole:
        return pa.Table.from_batches([], rest.schema)
    found = parser.parse(bodies, whole[0])
    kept = rest.filter(pa.array(found.good))
    for name, column in zip(found.columns.schema.names, found.columns.columns, strict=True):
        kept = kept.append_column(name, column)
    return kept


def _groups(
    rows: pa.Table, partition: Sequence[str], store: str
) -> Iterator[tuple[dict[str, int | str], pa.Table]]:
    """Split rows by partition; rows keep their order."""
    if not partition:
        yield {}, rows
        return
    key, *others = partition
    for value, part in _by(rows, key, store):
        for values, inner in _groups(part, others, store):
            yield {key: value, **values}, inner


def _by(rows: pa.Table, key: str, store: str) -> Iterator[tuple[int | str, pa.Table]]:

    if key == STORE:
        yield store, rows
    elif key == TOPIC:
        for topic in rows[TOPIC].unique().to_pylist():
            yield topic, _of(rows, TOPIC, topic)
    else:
        ms = rows["store_timestamp"].cast(pa.int64()).to_numpy() // 1000
        times = ms // TIMES[key]
        for each in np.unique(times).tolist():
            yield each, rows.filter(pa.array(times == each))


def _of(rows: pa.Table, name: str, value: Any) -> pa.Table:

    return rows.filter(pc.equal(rows[name], value))
