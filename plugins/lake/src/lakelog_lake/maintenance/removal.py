"""Removes rows from tables: those of a log that was cut, and dead letters that parse by now.

After a cut, every row is compared with the log. From the first row on that differs from the log,
all rows of the store are removed, in the commit that moves the position back to the end of the last
remaining row. The next dispatch lands the present records. Files that also hold other rows are
rewritten without the removed ones.

Dead letters land again with a corrected schema: rows are read from the table of dead letters,
parsed, and added to the main table. A second commit removes them from the dead letters. The first
commit requires the version of the main table in which the rows were looked up. So neither a kill
between the two commits nor a concurrent run of the same command loses or duplicates a row. Dead
letters of ranges that the main table does not have yet are not touched. Positions keep their values
and commit numbers, so a dispatcher can run meanwhile.
"""

from __future__ import annotations

import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import parquet

import lakelog
from lakelog.format.layout import COMPRESSED
from lakelog_lake import errors
from lakelog_lake.bodies.base import BodyParser
from lakelog_lake.landing import committing, targets
from lakelog_lake.log.wanted import Chosen
from lakelog_lake.maintenance import folders
from lakelog_lake.sinks import delta, delta_protocol
from lakelog_lake.tables import data_files, position
from lakelog_lake.tables.data_files import facts_of, found, hidden
from lakelog_lake.tables.position import Position, to_text
from lakelog_lake.tables.remote import sync
from lakelog_lake.tables.shape import (
    BODY,
    STORE,
    TIMES,
    TOPIC,
    Layout,
    dead_letter_columns,
    refused,
)
from lakelog_lake.tasks.task import ANY_TOPIC, FILE_BYTES
from lakelog_lake.verify import comparing, landed_table
from lakelog_lake.verify.verify import VerifyRequest, bounds_of, verify_here

_PLACE: Final = "physical_offset"


@attrs.frozen
class RemovedRows:
    """The rows of a store to remove, by the physical offsets of their records.

    :ivar start: all rows from this offset on, if ``places`` is ``None``
    :ivar places: the rows at these offsets
    """

    start: int = 0
    places: tuple[int, ...] | None = None

    def flags(self, places: Any) -> Any:
        """Whether to remove each row, given an Arrow column of physical offsets."""
        if self.places is None:
            return pc.greater_equal(places, self.start)
        return pc.is_in(places, pa.array(self.places, pa.int64()))

    def expression(self) -> Any:
        """The condition as an expression of pyiceberg."""
        from pyiceberg.expressions import GreaterThanOrEqual, In

        if self.places is None:
            return GreaterThanOrEqual(_PLACE, self.start)  # type: ignore[call-arg,arg-type]  # pyiceberg's __init__ takes them
        return In(_PLACE, self.places)  # type: ignore[call-arg,arg-type]  # pyiceberg's __init__ takes them


def take_out(
    table: landed_table.LandedTable,
    store: str,
    gone: RemovedRows,
    before: Position,
    after: Position,
) -> None:
    """Remove some rows of ``store`` and set its position, in one commit.

    :param before: the expected position of the store in the table
    :param after: its new position

    Raises :class:`~lakelog_lake.errors.Conflict` if the table has another position, or was changed
    meanwhile, and :class:`~lakelog_lake.errors.TableMaintenanceError`.
    """
    if isinstance(table, landed_table.ParquetRows):
        _from_parquet(table, store, gone, before, after)
    elif isinstance(table, landed_table.DeltaRows):
        _from_delta(table, store, gone, before, after)
    elif isinstance(table, landed_table.IcebergRows):
        _from_iceberg(table, store, gone, before, after)
    else:
        raise errors.TableMaintenanceError(
            f"rows of {table.name} can be removed by its own tools only"
        )


def _check(name: str, found: Position | None, before: Position) -> None:
    if found != before:
        raise errors.Conflict(f"{name} was changed by another writer")


def _rest(path: Path, store: str, gone: RemovedRows, known: Mapping[str, Any]) -> pa.Table | None:
    """The remaining rows of a file; ``None`` if no row is removed.

    :param known: columns that the file does not have
    """
    if known.get(STORE, store) != store:
        return None
    is_gone = gone.flags(parquet.read_table(path, columns=[_PLACE], partitioning=None)[_PLACE])
    if not pc.any(is_gone).as_py():
        return None
    rows = parquet.read_table(path, partitioning=None)
    if STORE not in known:
        is_gone = pc.and_(is_gone, pc.equal(rows[STORE], store))
    return rows.filter(pc.invert(is_gone)) if pc.any(is_gone).as_py() else None


def _from_parquet(
    table: landed_table.ParquetRows,
    store: str,
    gone: RemovedRows,
    before: Position,
    after: Position,
) -> None:
    versions = table.sink
    version = versions.newest()
    _check(table.name, versions.position(store), before)
    entries = []
    for each in versions.entries(version[0]):
        rest = _rest(found(versions.path / each["path"]), store, gone, {})
        if rest is None:
            entries.append(each)
        elif rest.num_rows:
            named = versions.folder / f"rewound-{uuid4().hex}.parquet"
            folders.write(rest.schema, [rest], hidden(named))
            size = hidden(named).stat().st_size
            path = versions.within(str(named))
            entries.append({**each, "path": path, "size_bytes": size, "rows": rest.num_rows})
    sync(versions.folder)
    versions.replace(version, entries, {store: to_text(after)})


def _from_delta(
    table: landed_table.DeltaRows, store: str, gone: RemovedRows, before: Position, after: Position
) -> None:
    from deltalake.transaction import AddAction, RemoveAction

    sink = table.sink
    if not isinstance(sink.folder, Path):
        raise errors.TableMaintenanceError(
            f"{table.name} is in an object store, where rewinding a Delta table is not supported "
            "yet; nothing was changed: land in a new table"
        )
    head = sink.head(store)
    _check(table.name, head.position, before)
    if delta_protocol.is_append_only(head.version.table):
        raise errors.TableMaintenanceError(
            f"{table.name} is append-only (delta.appendOnly): no row can be removed; nothing was "
            "changed"
        )
    actions: list[AddAction | RemoveAction] = []
    now_ms = time.time_ns() // 1_000_000
    for each in table.actions():
        rest = _rest(Path(str(each.path)), store, gone, each.partition)
        if rest is None:
            continue
        values = {name: None if it is None else str(it) for name, it in each.partition.items()}
        actions.append(RemoveAction(each.named, True, now_ms, each.size_bytes, values))
        if rest.num_rows:
            made = Path(str(each.path)).parent / f"rewound-{uuid4().hex}.parquet"
            metadata = folders.write(rest.schema, [rest], made)
            facts = facts_of(metadata, str(made), made.stat().st_size, {})
            actions.append(delta.added(sink.within(facts.path), facts, values))
            sync(made.parent)
    sink.change(head, store, actions, after)


def _from_iceberg(
    table: landed_table.IcebergRows,
    store: str,
    gone: RemovedRows,
    before: Position,
    after: Position,
) -> None:
    from pyiceberg.expressions import And, EqualTo

    sink = table.sink
    head = sink.head(store)
    _check(table.name, head.position, before)
    transaction = sink.begun(head)
    transaction.delete(
        And(EqualTo("store", store), gone.expression())  # type: ignore[call-arg,arg-type]  # pyiceberg's __init__ takes them
    )
    sink.finish(transaction, head, store, [], after)


_NOT_IN_LOG: Final = (comparing.EXTRA, comparing.PLACE, comparing.BODY, comparing.COLUMNS)


@attrs.frozen
class RewoundRows:
    """The rows of one queue to remove.

    :ivar first: queue offset of the first row
    :ivar last: queue offset of the last row
    :ivar start: physical offset of the first row
    :ivar rows: number of rows
    """

    topic: str
    queue: int
    first: int
    last: int
    start: int
    rows: int


@attrs.frozen
class Rewind:
    """The planned change of one table.

    :ivar before: its present position
    :ivar after: its position after the change
    :ivar start: physical offset of the first row that is removed
    """

    table: landed_table.LandedTable
    store: str
    before: Position
    after: Position
    start: int
    queues: tuple[RewoundRows, ...]

    @property
    def rows(self) -> int:
        """The number of rows to remove."""
        return sum(each.rows for each in self.queues)

    def do(self) -> None:
        """Commit the change; raises :class:`~lakelog_lake.errors.TooBusy`."""
        try:
            take_out(self.table, self.store, RemovedRows(self.start), self.before, self.after)
        except errors.Conflict as error:
            raise errors.TooBusy(
                f"{error}; nothing was changed: stop dispatchers, and repeat"
            ) from error


def planned(
    path: Path, store: str, to: str, table: str | None, dead_letters: str | None
) -> Iterator[Rewind]:
    """Plan for each table with rows that differ from the log; tables of dead letters come first.

    Raises :class:`~lakelog_lake.errors.TableMaintenanceError`.
    """
    for each in landed_table.all_opened(to, table, dead_letters):
        store = landed_table.landed_name(path, store, [each.table])
        start = _first_unknown(path, store, each)
        for one in reversed(each.each) if start is not None else ():
            before = one.position(store)
            if before is not None:
                yield _rewind(path, store, one, before, start or 0)


def _first_unknown(path: Path, store: str, opened: landed_table.OpenTable) -> int | None:
    """The physical offset of the first row that differs from the log; ``None`` if none does."""
    found = verify_here(VerifyRequest(path, store, opened.table, Chosen(), opened.dead_letters))
    if found.differences.not_listed:
        raise errors.TooManyDifferences(opened.table.name, path)
    places = [each.start for each in found.differences.each() if each.kind in _NOT_IN_LOG]
    positions = (each.position(store) for each in opened.each)
    with lakelog.open(path, mode="read") as log:
        ends = [
            each.end
            for each in positions
            if each is not None and bounds_of(log, each, opened.table.name).problem is not None
        ]
    return min((*places, *ends), default=None)


def _rewind(
    path: Path, store: str, table: landed_table.LandedTable, before: Position, start: int
) -> Rewind:

    gone: list[pa.RecordBatch] = []

    def kept() -> Iterator[pa.RecordBatch]:
        for batch in table.batches(store, position.LAST_ROWS):
            is_gone = pc.greater_equal(batch.column("physical_offset"), start)
            gone.append(batch.filter(is_gone).select(position.LAST_ROWS[1:5]))
            yield batch.filter(pc.invert(is_gone))

    with landed_table.readable(table.name):
        last = position.positions_of(kept(), table.name).get(store)
    if last is None:
        with lakelog.open(path, mode="read") as log:
            last = Position(log.min_offset, log.min_offset)
    after = Position(last.end, last.end, last.last, last.next_offsets, chosen=before.chosen)
    bodies = tuple(each for each in before.bodies if each[0] < last.end)
    after = attrs.evolve(after, bodies=bodies)
    queues = tuple(_by_queue(pa.Table.from_batches(gone))) if gone else ()
    return Rewind(table, store, before, after, start, queues)


def _by_queue(rows: Any) -> Iterable[RewoundRows]:
    grouped = rows.group_by(["topic", "queue_id"]).aggregate(
        [
            ("queue_offset", "min"),
            ("queue_offset", "max"),
            ("physical_offset", "min"),
            ("physical_offset", "count"),
        ]
    )
    names = ("queue_offset_min", "queue_offset_max", "physical_offset_min", "physical_offset_count")
    found = grouped.select(["topic", "queue_id", *names]).to_pylist()
    return sorted((RewoundRows(*each.values()) for each in found), key=lambda each: each.start)


_TRIES: Final = 5
_HELD_BYTES: Final = 64 << 20


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


def reland(spec: targets.TableSpec) -> Iterator[Relanded]:
    """Land dead letters that parse now, table by table.

    Raises :class:`~lakelog_lake.errors.TableMaintenanceError`, and the errors of changing the
    tables' columns.
    """
    for opened in landed_table.all_opened(spec.to, spec.table, spec.dead_letters, spec.storage):
        if opened.dead_letters is not None:
            yield _of_one(spec, opened, opened.dead_letters)


def _of_one(
    spec: targets.TableSpec, opened: landed_table.OpenTable, dead: landed_table.LandedTable
) -> Relanded:
    if isinstance(dead, landed_table.DeltaRows) and not isinstance(dead.sink.folder, Path):
        raise errors.TableMaintenanceError(
            f"{dead.name} is in an object store, where removing rows from a Delta table is not "
            "supported yet; nothing was changed"
        )
    with landed_table.readable(dead.name):
        stores = landed_table.stores_in(dead)
    landed = taken_out = left = 0
    target = None
    for store in sorted(stores):
        target = target or targets.TopicTables.of(spec).target(opened.topic)
        one = _Store(opened.table, dead, target, store)
        landed += one.land()
        gone, rest = one.take_out()
        taken_out, left = taken_out + gone, left + rest
    return Relanded(opened.table.name, landed, taken_out, left)


@attrs.frozen
class _Store:
    """The dead letters of one store in one table."""

    table: landed_table.LandedTable
    dead: landed_table.LandedTable
    target: targets.Target
    store: str

    def land(self) -> int:
        """Land the rows that parse; return their number. Raises ``TooBusy``."""
        sink = self.target.sink
        for _ in range(_TRIES):
            with committing.table_errors(sink.name):
                head = sink.head(self.store)
            if head.position is None:
                return 0  # its first range has not landed yet
            if head.form != sink.layout.form:
                sink.prepare()
                continue
            files = self._written(self._in_both(), head.position.end)
            if not files:
                return 0
            try:
                with committing.table_errors(sink.name):
                    sink.commit(head, self.store, files, head.position)
            except (
                errors.Conflict
            ):  # also after a commit whose answer was lost: read the table again
                continue
            return sum(each.rows for each in files)
        raise errors.TooBusy(f"{sink.name}: others changed it in each of {_TRIES} tries; try again")

    def take_out(self) -> tuple[int, int]:
        """Remove landed dead letters; return how many were removed and how many are left."""
        for _ in range(_TRIES):
            before = self.dead.position(self.store)
            places = self._in_both()
            if before is None:
                raise errors.NotLanded(self.dead.name, self.store, set())
            if not len(places):
                return 0, len(self._dead_places())
            try:
                gone = RemovedRows(places=tuple(places.tolist()))
                take_out(self.dead, self.store, gone, before, before)
            except errors.Conflict:
                continue
            return len(places), len(self._dead_places())
        raise errors.TooBusy(
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
        with landed_table.readable(self.dead.name):
            for batch in self.dead.batches(self.store, columns.names):
                places = batch.column(_PLACE).to_numpy()
                waits = (places < end) & ~np.isin(places, done)
                rows = pa.Table.from_batches([batch]).filter(pa.array(waits)).cast(columns)
                for topic in rows[TOPIC].unique().to_pylist():
                    parser = self.target.parsers.get(topic) or self.target.parsers.get(ANY_TOPIC)
                    of_topic = rows.filter(pc.equal(rows[TOPIC], topic))
                    if parser is not None:
                        good = _good(parser, of_topic.filter(pa.array(_is_unpacked(of_topic))))
                        yield _allowed(good, self.target.sink.layout)

    def _files(self, held: Sequence[pa.Table]) -> Iterator[data_files.FileFacts]:

        layout = self.target.sink.layout
        prefix = f"relanded-{uuid4().hex[:8]}"
        folder = self.target.sink.folder
        place = data_files.FilePlacement(folder, layout, self.store, prefix, FILE_BYTES)
        if not held:
            return
        rows = pa.concat_tables(held, promote_options="default")
        order = [(TOPIC, "ascending"), ("queue_id", "ascending"), ("queue_offset", "ascending")]
        with data_files.PartitionFiles() as files:
            for values, part in _groups(rows.sort_by(order), layout.partition, self.store):
                files.add(0, place, values, part.combine_chunks().to_batches())
            yield from files.finished().get(0, ())


def _places(table: landed_table.LandedTable, store: str) -> NDArray[np.int64]:
    with landed_table.readable(table.name):
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


def _allowed(rows: pa.Table, layout: Layout) -> pa.Table:
    """The rows that the table takes; others stay dead letters."""
    good = np.ones(rows.num_rows, np.bool_)
    for batch in rows.combine_chunks().to_batches():
        for _, wrong in refused(batch, layout):
            good &= ~wrong
    return rows.filter(pa.array(good))


def _groups(
    rows: pa.Table, partition: Sequence[str], store: str
) -> Iterator[tuple[dict[str, int | str], pa.Table]]:
    """Split rows by partition; rows keep their order."""
    columns = [_values(rows, key, store) for key in partition]
    places: dict[tuple[int | str, ...], list[int]] = defaultdict(list)
    for row in range(rows.num_rows):
        places[tuple(each[row] for each in columns)].append(row)
    for values, found_rows in places.items():
        yield dict(zip(partition, values, strict=True)), rows.take(found_rows)


def _values(rows: pa.Table, key: str, store: str) -> list[Any]:
    """The value of one partition key for each row."""
    if key == STORE:
        return [store] * rows.num_rows
    if key == TOPIC:
        return cast("list[Any]", rows[TOPIC].to_pylist())
    ms = rows["store_timestamp"].cast(pa.int64()).to_numpy() // 1000
    return cast("list[Any]", (ms // TIMES[key]).tolist())
