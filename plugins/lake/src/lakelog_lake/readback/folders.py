"""Rows of Delta and Parquet tables: both are lists of files in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import attrs

from lakelog_lake.errors import NeedsEngine, NoTable, NotAMessageTable
from lakelog_lake.readback.landed_table import (
    BATCH_ROWS,
    DataFile,
    TableCommit,
    TableSize,
    of_delta,
    of_parquet,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from lakelog_lake.sinks.delta import DeltaSink
    from lakelog_lake.sinks.parquet import ParquetSink
    from lakelog_lake.tables.position import Position
    from lakelog_lake.tables.remote import Folder


@attrs.frozen
class ParquetRows:
    """Reads a Parquet table.

    :ivar sink: the table
    """

    sink: ParquetSink

    @property
    def name(self) -> str:
        """The table's name in messages."""
        return self.sink.name

    def columns(self) -> Mapping[str, str]:
        """The columns of all files; of an empty table, those of its future files."""
        schema = self.sink.schema() or self.sink.layout.columns
        return {each.name: str(each.type) for each in schema}

    def position(self, store: str) -> Position | None:
        """The position in the newest manifest."""
        return self.sink.position(store)

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read file by file; a file is only open while it is read."""
        from pyarrow import dataset

        schema = self.sink.schema()
        for file in self.sink.open_files():
            format_ = dataset.ParquetFileFormat()
            fragment = format_.make_fragment(file)
            rows = dataset.FileSystemDataset([fragment], schema, format_)
            yield from _scanned(rows, store, columns)

    def data_files(self) -> list[DataFile]:
        """All files; they contain all columns."""
        return [(str(path), {}) for path in self.sink.paths()]

    def size(self) -> TableSize:
        """The size from the manifests."""
        files = self.sink.files()
        rows, size = (sum(int(each[name]) for each in files) for name in ("rows", "size_bytes"))
        return TableSize(rows, len(files), size, self.sink.versions())

    def commits(self) -> list[TableCommit]:
        """The last commits from the manifests."""
        return of_parquet(self.sink)


@attrs.frozen
class Added:
    """One file of a Delta table.

    :ivar named: its path in the log
    :ivar path: its location
    :ivar partition: values of the columns that the file does not have
    :ivar begins: its smallest physical offset; ``None`` if the log has no statistics for it
    """

    named: str
    path: Folder
    size_bytes: int
    partition: Mapping[str, Any]
    begins: int | None = None


@attrs.frozen
class DeltaRows:
    """Reads a Delta table.

    :ivar sink: the table
    """

    sink: DeltaSink

    @property
    def name(self) -> str:
        """The table's name in messages."""
        return self.sink.name

    def columns(self) -> Mapping[str, str]:
        """The columns of the newest version."""
        fields = self._table().schema().fields
        return {each.name: str(getattr(each.type, "type", each.type)) for each in fields}

    def position(self, store: str) -> Position | None:
        """The position in the newest version."""
        return self.sink.head(store).position

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read with deltalake, through Arrow."""
        from deltalake.exceptions import DeltaProtocolError

        try:
            rows = self._table().to_pyarrow_dataset()
        except DeltaProtocolError as error:
            raise NotAMessageTable(
                self.name, f"it uses features that Arrow cannot read ({error})"
            ) from error
        yield from _scanned(rows, store, columns)

    def data_files(self) -> list[DataFile]:
        """All files; partition columns are not in them."""
        return [(str(each.path), each.partition) for each in self.actions()]

    def size(self) -> TableSize:
        """The size from the table's log; files without statistics count as 0 rows."""
        import pyarrow as pa

        table = self._table()
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        rows = sum(each.get("num_records") or 0 for each in actions)
        size = sum(each["size_bytes"] for each in actions)
        return TableSize(rows, len(actions), size, len(table.history()))

    def commits(self) -> list[TableCommit]:
        """The last commits from the log of a local table; none for an object store."""
        return of_delta(self.sink.path) if isinstance(self.sink.path, Path) else []

    def actions(self) -> list[Added]:
        """The files of the newest version; raises the errors of :meth:`data_files`."""
        import pyarrow as pa

        table = self._table()
        if "deletionVectors" in (table.protocol().reader_features or ()):
            raise NeedsEngine(
                f"{self.name} has deletion vectors: compare it with --engine processes"
            )
        actions = pa.table(table.get_add_actions(flatten=True))
        own = [name for name in actions.column_names if name.startswith("partition.")]
        folder = self.sink.path
        return [
            Added(
                row["path"],
                _found(folder, row["path"]) if isinstance(folder, Path) else folder / row["path"],
                row["size_bytes"],
                {name.removeprefix("partition."): row[name] for name in own},
                row.get("min.physical_offset"),
            )
            for row in actions.to_pylist()
        ]

    def _table(self) -> DeltaTable:
        from deltalake.exceptions import TableNotFoundError

        from lakelog_lake.sinks.delta import opened

        try:
            return opened(self.sink.path)
        except TableNotFoundError as error:
            raise NoTable(str(self.sink.path), "there is no Delta table") from error


def _found(folder: Path, path: str) -> Path:
    """The location of a file of the log, whose path may be percent-encoded."""
    plain = folder / path
    return plain if plain.exists() else folder / unquote(path)


def _scanned(rows: Any, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``store``.

    They are filtered here: the data set treats a column without statistics as empty.
    """
    import pyarrow.compute as pc

    if not set(columns) <= set(rows.schema.names):
        return  # it has no files yet
    for batch in rows.to_batches(
        columns=list(columns), batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1
    ):
        kept = batch if store is None else batch.filter(pc.equal(batch.column("store"), store))
        if kept.num_rows:
            yield kept
