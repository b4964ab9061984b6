"""Rows of Delta and Parquet tables: both are a list of files in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import attrs

from lakelog_lake.errors import NeedsEngine, NoTable, NotLakelogs
from lakelog_lake.readback.commits import TableCommit, of_delta, of_parquet
from lakelog_lake.readback.landed_table import BATCH_ROWS, DataFile, TableSize

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from lakelog_lake.sinks.delta import DeltaSink
    from lakelog_lake.sinks.parquet import ParquetSink
    from lakelog_lake.tables.position import Position
    from lakelog_lake.tables.remote import Folder


@attrs.frozen
class ParquetRows:
    """:ivar sink: which has its manifests."""

    sink: ParquetSink

    @property
    def name(self) -> str:
        """The folder."""
        return self.sink.name

    def columns(self) -> Mapping[str, str]:
        """Of all files; those that it would have while it has none."""
        schema = self.sink.schema() or self.sink.layout.columns
        return {each.name: str(each.type) for each in schema}

    def position(self, store: str) -> Position | None:
        """As the newest manifest has it."""
        return self.sink.position(store)

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """File by file, each of which is open while it is read."""
        from pyarrow import dataset

        schema = self.sink.schema()
        for file in self.sink.open_files():
            format_ = dataset.ParquetFileFormat()
            fragment = format_.make_fragment(file)
            rows = dataset.FileSystemDataset([fragment], schema, format_)
            yield from _scanned(rows, store, columns)

    def data_files(self) -> list[DataFile]:
        """With all their columns."""
        return [(str(path), {}) for path in self.sink.paths()]

    def size(self) -> TableSize:
        """By the manifests."""
        files = self.sink.files()
        rows, size = (sum(int(each[name]) for each in files) for name in ("rows", "size_bytes"))
        return TableSize(rows, len(files), size, self.sink.versions())

    def commits(self) -> list[TableCommit]:
        """By the manifests."""
        return of_parquet(self.sink)


@attrs.frozen
class Added:
    """A file of a Delta table.

    :ivar named: as the log names it; :ivar path: where it is
    :ivar partition: the columns that the file does not hold
    :ivar begins: its least physical offset; ``None`` where the log of the table does not say it
    """

    named: str
    path: Folder
    size_bytes: int
    partition: Mapping[str, Any]
    begins: int | None = None


@attrs.frozen
class DeltaRows:
    """:ivar sink: which knows where it is."""

    sink: DeltaSink

    @property
    def name(self) -> str:
        """The folder."""
        return self.sink.name

    def columns(self) -> Mapping[str, str]:
        """Those of the newest version."""
        fields = self._table().schema().fields
        return {each.name: str(getattr(each.type, "type", each.type)) for each in fields}

    def position(self, store: str) -> Position | None:
        """As the transaction identifiers have it."""
        return self.sink.head(store).position

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """By deltalake, through Arrow."""
        from deltalake.exceptions import DeltaProtocolError

        try:
            rows = self._table().to_pyarrow_dataset()
        except DeltaProtocolError as error:
            raise NotLakelogs(
                self.name, f"it has features that Arrow does not read ({error})"
            ) from error
        yield from _scanned(rows, store, columns)

    def data_files(self) -> list[DataFile]:
        """The columns of partitions stand in no file."""
        return [(str(each.path), each.partition) for each in self.actions()]

    def size(self) -> TableSize:
        """By the log; files without statistics count no rows."""
        import pyarrow as pa

        table = self._table()
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        rows = sum(each.get("num_records") or 0 for each in actions)
        size = sum(each["size_bytes"] for each in actions)
        return TableSize(rows, len(actions), size, len(table.history()))

    def commits(self) -> list[TableCommit]:
        """By the log; of an object store they are not looked up."""
        return of_delta(self.sink.path) if isinstance(self.sink.path, Path) else []

    def actions(self) -> list[Added]:
        """The files of the newest version; raises what :meth:`data_files` does."""
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
            raise NoTable(str(self.sink.path), "no Delta table is there") from error


def _found(folder: Path, path: str) -> Path:
    """Where a file of the log is: its path may have been encoded as in a URI."""
    plain = folder / path
    return plain if plain.exists() else folder / unquote(path)


def _scanned(rows: Any, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The data set must not filter: deltalake's takes a column without statistics for empty."""
    import pyarrow.compute as pc

    if not set(columns) <= set(rows.schema.names):
        return  # it has no files yet
    for batch in rows.to_batches(
        columns=list(columns), batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1
    ):
        kept = batch if store is None else batch.filter(pc.equal(batch.column("store"), store))
        if kept.num_rows:
            yield kept
