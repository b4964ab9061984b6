"""Removes rows of a store from a table and sets its position, in one commit.

Files that also hold other rows are rewritten without the removed ones.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

import attrs

from lakelog_lake.errors import Conflict, TableMaintenanceError
from lakelog_lake.maintenance import merging
from lakelog_lake.maintenance.parquet import Versions
from lakelog_lake.readback.folders import DeltaRows, ParquetRows
from lakelog_lake.readback.iceberg import IcebergRows
from lakelog_lake.readback.landed_table import LandedTable
from lakelog_lake.tables.file_facts import facts_of, hidden
from lakelog_lake.tables.partitions import STORE
from lakelog_lake.tables.position import Position, to_text
from lakelog_lake.tables.remote import sync
from lakelog_lake.tables.visible_files import found

if TYPE_CHECKING:
    import pyarrow as pa


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
        import pyarrow.compute as pc

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
        import pyarrow as pa
        import pyarrow.compute as pc

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


def _check(name: str, found: Position | None, before: Position) -> None:
    if found != before:
        raise Conflict(f"{name} was changed by another writer")


def _rest(path: Path, store: str, gone: RemovedRows, known: Mapping[str, Any]) -> pa.Table | None:
    """The remaining rows of a file; ``None`` if no row is removed.

    :param known: columns that the file does not have
    """
    import pyarrow.compute as pc
    from pyarrow import parquet

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
            merging.write(rest.schema, [rest], hidden(named))
            size = hidden(named).stat().st_size
            path = versions.within(str(named))
            entries.append({**each, "path": path, "size_bytes": size, "rows": rest.num_rows})
    sync(versions.folder)
    versions.replace(version, entries, {store: to_text(after)})


def _from_delta(
    table: DeltaRows, store: str, gone: RemovedRows, before: Position, after: Position
) -> None:
    from deltalake.transaction import AddAction, RemoveAction

    from lakelog_lake.sinks.delta import added

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
            metadata = merging.write(rest.schema, [rest], made)
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
