"""Removes rows of a store whose log was cut, so that landing can continue behind the rest.

Every row is compared with the log. From the first row on that differs from the log, all rows of the
store are removed, in the commit that moves the position back to the end of the last remaining row.
The next dispatch lands the present records. Files that also hold other rows are rewritten without
the removed ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

import lakelog
from lakelog_lake.errors import Conflict, TableMaintenanceError, TooBusy, TooManyDifferences
from lakelog_lake.log.wanted import Chosen
from lakelog_lake.maintenance import parquet as parquet_maintenance
from lakelog_lake.maintenance.parquet import Versions
from lakelog_lake.sinks.delta import added
from lakelog_lake.sinks.history import LAST_ROWS, positions_of
from lakelog_lake.tables.data_files import facts_of, found, hidden
from lakelog_lake.tables.position import Position, to_text
from lakelog_lake.tables.remote import sync
from lakelog_lake.tables.shape import STORE
from lakelog_lake.verify.comparing import BODY, COLUMNS, EXTRA, PLACE
from lakelog_lake.verify.landed_table import DeltaRows, IcebergRows, LandedTable, ParquetRows
from lakelog_lake.verify.open import OpenTable, all_opened, readable
from lakelog_lake.verify.verify import VerifyRequest, bounds_of, verify_here

_PLACE: Final = "physical_offset"


class RemovedRows(Protocol):
    """The rows of a store to remove, by the physical offsets of their records."""

    def flags(self, places: Any) -> Any:
        """Whether to remove each row, given an Arrow column of physical offsets."""

    def expression(self) -> Any:
        """The condition as an expression of pyiceberg."""


@attrs.frozen
class RowsFrom:
    """Rows at physical offset ``start`` and behind."""

    start: int

    def flags(self, places: Any) -> Any:
        """See :class:`RemovedRows`."""
        return pc.greater_equal(places, self.start)

    def expression(self) -> Any:
        """See :class:`RemovedRows`."""
        from pyiceberg.expressions import GreaterThanOrEqual

        return GreaterThanOrEqual(_PLACE, self.start)  # type: ignore[call-arg,arg-type]  # its __init__ takes them


@attrs.frozen
class RowsAt:
    """Rows at these physical offsets."""

    places: tuple[int, ...]

    def flags(self, places: Any) -> Any:
        """See :class:`RemovedRows`."""
        return pc.is_in(places, pa.array(self.places, pa.int64()))

    def expression(self) -> Any:
        """See :class:`RemovedRows`."""
        from pyiceberg.expressions import In

        return In(_PLACE, self.places)  # type: ignore[call-arg,arg-type]  # its __init__ takes them


def take_out(
    table: LandedTable, store: str, gone: RemovedRows, before: Position, after: Position
) -> None:
    """Remove some rows of ``store`` and set its position, in one commit.

    :param before: the expected position of the store in the table
    :param after: its new position

    Raises :class:`~lakelog_lake.errors.Conflict` if the table has another position, or was changed
    meanwhile, and :class:`~lakelog_lake.errors.TableMaintenanceError`.
    """
    if isinstance(table, ParquetRows):
        _from_parquet(table, store, gone, before, after)
    elif isinstance(table, DeltaRows):
        _from_delta(table, store, gone, before, after)
    elif isinstance(table, IcebergRows):
        _from_iceberg(table, store, gone, before, after)
    else:
        raise TableMaintenanceError(f"rows of {table.name} can be removed by its own tools only")


def _check(name: str, found: Position | None, before: Position) -> None:
    if found != before:
        raise Conflict(f"{name} was changed by another writer")


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
    table: ParquetRows, store: str, gone: RemovedRows, before: Position, after: Position
) -> None:
    versions = Versions(table.sink.path, table.sink.shape)
    version = versions.newest()
    _check(table.name, versions.position(store), before)
    entries = []
    for each in version.entries:
        rest = _rest(found(versions.path / each["path"]), store, gone, {})
        if rest is None:
            entries.append(each)
        elif rest.num_rows:
            named = versions.folder / f"rewound-{uuid4().hex}.parquet"
            parquet_maintenance.write(rest.schema, [rest], hidden(named))
            size = hidden(named).stat().st_size
            path = versions.within(str(named))
            entries.append({**each, "path": path, "size_bytes": size, "rows": rest.num_rows})
    sync(versions.folder)
    versions.replace(version, entries, {store: to_text(after)})


def _from_delta(
    table: DeltaRows, store: str, gone: RemovedRows, before: Position, after: Position
) -> None:
    from deltalake.transaction import AddAction, RemoveAction

    sink = table.sink
    folder = sink.folder
    if not isinstance(folder, Path):
        raise TableMaintenanceError(
            f"{table.name} is in an object store, where rewinding a Delta table is not supported "
            "yet; nothing was changed: land in a new table"
        )
    head = sink.head(store)
    _check(table.name, head.position, before)
    actions: list[AddAction | RemoveAction] = []
    now_ms = time.time_ns() // 1_000_000
    for each in table.actions():
        rest = _rest(Path(str(each.path)), store, gone, each.partition)
        if rest is None:
            continue
        values = {name: None if it is None else str(it) for name, it in each.partition.items()}
        actions.append(RemoveAction(each.named, True, now_ms, each.size_bytes, values))
        if rest.num_rows:
            made = folder / f"rewound-{uuid4().hex}.parquet"
            metadata = parquet_maintenance.write(rest.schema, [rest], made)
            facts = facts_of(metadata, str(made), made.stat().st_size, {})
            actions.append(added(sink.within(facts.path), facts, values))
    sync(folder)
    sink.change(head, store, actions, after)


def _from_iceberg(
    table: IcebergRows, store: str, gone: RemovedRows, before: Position, after: Position
) -> None:
    from pyiceberg.expressions import And, EqualTo

    sink = table.sink
    head = sink.head(store)
    _check(table.name, head.position, before)
    transaction = head.version.table.transaction()
    transaction.delete(
        And(EqualTo("store", store), gone.expression())  # type: ignore[call-arg,arg-type]  # its __init__ takes them
    )
    sink.finish(transaction, head, store, [], after)


_NOT_IN_LOG: Final = (EXTRA, PLACE, BODY, COLUMNS)


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

    table: LandedTable
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
            take_out(self.table, self.store, RowsFrom(self.start), self.before, self.after)
        except Conflict as error:
            raise TooBusy(f"{error}; nothing was changed: stop dispatchers, and repeat") from error


def planned(
    path: Path, store: str, to: str, table: str | None, dead_letters: str | None
) -> Iterator[Rewind]:
    """Plan for each table with rows that differ from the log; tables of dead letters come first.

    Raises :class:`~lakelog_lake.errors.TableMaintenanceError`.
    """
    for each in all_opened(to, table, dead_letters):
        start = _first_unknown(path, store, each)
        for one in reversed(each.each) if start is not None else ():
            before = one.position(store)
            if before is not None:
                yield _rewind(path, store, one, before, start or 0)


def _first_unknown(path: Path, store: str, opened: OpenTable) -> int | None:
    """The physical offset of the first row that differs from the log; ``None`` if none does."""
    found = verify_here(VerifyRequest(path, store, opened.whole, Chosen()))
    if found.differences.not_listed:
        raise TooManyDifferences(opened.table.name, path)
    places = [each.start for each in found.differences.each() if each.kind in _NOT_IN_LOG]
    positions = (each.position(store) for each in opened.each)
    with lakelog.open(path, mode="read") as log:
        ends = [
            each.end
            for each in positions
            if each is not None and bounds_of(log, each, opened.table.name).problem is not None
        ]
    return min((*places, *ends), default=None)


def _rewind(path: Path, store: str, table: LandedTable, before: Position, start: int) -> Rewind:

    gone: list[pa.RecordBatch] = []

    def kept() -> Iterator[pa.RecordBatch]:
        for batch in table.batches(store, LAST_ROWS):
            is_gone = pc.greater_equal(batch.column("physical_offset"), start)
            gone.append(batch.filter(is_gone).select(LAST_ROWS[1:5]))
            yield batch.filter(pc.invert(is_gone))

    with readable(table.name):
        last = positions_of(kept(), table.name).get(store)
    if last is None:
        with lakelog.open(path, mode="read") as log:
            last = Position(log.min_offset, log.min_offset)
    after = Position(last.end, last.end, last.last, last.next_offsets, chosen=before.chosen)
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
