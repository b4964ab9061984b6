"""Rows of an Iceberg table, read with pyiceberg, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from lakelog_lake.errors import NeedsEngine, NoTable
from lakelog_lake.readback.landed_table import (
    BATCH_ROWS,
    DataFile,
    TableCommit,
    TableSize,
    of_iceberg,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

    from lakelog_lake.sinks.iceberg import IcebergSink
    from lakelog_lake.tables.position import Position


@attrs.frozen
class IcebergRows:
    """Reads an Iceberg table.

    :ivar sink: the table
    """

    sink: IcebergSink

    @property
    def name(self) -> str:
        """The table's name in messages."""
        return self.sink.name

    def columns(self) -> Mapping[str, str]:
        """The columns of the newest version."""
        return {each.name: str(each.field_type) for each in self.table().schema().fields}

    def position(self, store: str) -> Position | None:
        """The position in the newest snapshot, or in the table's property."""
        return self.sink.head(store).position

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Scan in batches of a bounded number of rows."""
        from pyiceberg.expressions import AlwaysTrue, EqualTo

        condition = AlwaysTrue() if store is None else EqualTo("store", store)  # type: ignore[call-arg,arg-type]  # its __init__ takes them
        scan = self.table().scan(condition, selected_fields=tuple(columns))
        for batch in scan.to_arrow_batch_reader():
            for at in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(at, BATCH_ROWS)

    def data_files(self) -> list[DataFile]:
        """All files, with all columns; raises :class:`NeedsEngine` if there are delete files."""
        tasks = list(self.table().scan().plan_files())
        if any(each.delete_files for each in tasks):
            raise NeedsEngine(
                f"{self.name} has delete files: compact it, or compare it with --engine processes"
            )
        return [(each.file.file_path, {}) for each in tasks]

    def size(self) -> TableSize:
        """The size from the summary of the newest snapshot."""
        table = self.table()
        snapshot = table.current_snapshot()
        summary = None if snapshot is None else snapshot.summary
        rows, files, size = (
            int((summary.get(name) if summary else None) or 0)
            for name in ("total-records", "total-data-files", "total-files-size")
        )
        return TableSize(rows, files, size, len(table.metadata.snapshots))

    def commits(self) -> list[TableCommit]:
        """The last commits from the snapshots that are kept."""
        return of_iceberg(self.table())

    def table(self) -> Table:
        """The newest version; raises :class:`NoTable`."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self.sink.catalog.load_table(self.sink.table)
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            known = ", ".join(self._names()) or "none"
            raise NoTable(self.name, f"the catalog has no such table; it has {known}") from error

    def _names(self) -> list[str]:
        catalog = self.sink.catalog
        spaces = catalog.list_namespaces()
        return [".".join(each) for space in spaces for each in catalog.list_tables(space)]
