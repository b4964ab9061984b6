"""Existing tables, opened and read back: rows, files, sizes, positions and last commits.

No table is created here; a table is named as for ``lakelog dispatch``. Delta and Parquet tables are
lists of files in a folder. Iceberg tables are read with pyiceberg, without a JVM. The last commits
come from the table's own metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset

import lakelog
from lakelog_lake.errors import NeedsEngine, NoTable, NotAMessageTable, NotLanded, Unreadable
from lakelog_lake.landing.committing import table_errors
from lakelog_lake.landing.targets import landed_as
from lakelog_lake.log.records import store_name
from lakelog_lake.sinks import delta, delta_protocol, iceberg, parquet
from lakelog_lake.sinks.base import KEY
from lakelog_lake.sinks.delta_protocol import BATCH_ROWS
from lakelog_lake.sinks.locations import TableLocation, is_template, location_of, named
from lakelog_lake.tables import remote, shape
from lakelog_lake.tables.position import Position, from_text, texts_in

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.table import Table

DataFile: TypeAlias = "tuple[str, Mapping[str, Any]]"
"""A path or URI, and the columns that the file itself does not hold."""


Texts: TypeAlias = "Mapping[str, str]"
"""Texts of positions by store."""


@attrs.frozen
class TableSize:
    """The size of a table.

    :ivar rows: number of rows of the newest version, including rows removed by Iceberg delete files
    :ivar files: number of its data files
    :ivar bytes: total size of these files
    :ivar versions: number of kept Iceberg snapshots, Delta versions, or Parquet manifests
    """

    rows: int
    files: int
    bytes: int
    versions: int


class LandedTable(Protocol):
    """One table of any kind; each call reads its newest version."""

    @property
    def name(self) -> str:
        """The table's name in messages."""

    def columns(self) -> Mapping[str, str]:
        """Types by column name, as the kind of table writes them; raises ``NoTable``."""

    def position(self, store: str) -> Position | None:
        """The position of ``store``; ``None`` if it never landed here."""

    def texts(self) -> Texts:
        """The texts of the positions of all stores."""

    def folder(self) -> remote.Folder:
        """The folder of the data files."""

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of ``store``, or of all stores, in any order."""

    def data_files(self) -> list[DataFile]:
        """The data files of the newest version.

        Raises :class:`~lakelog_lake.errors.NeedsEngine` if delete files change their rows.
        """

    def size(self) -> TableSize:
        """The size from the table's metadata; no data file is read."""

    def commits(self) -> list[TableCommit]:
        """The last commits, oldest first; empty if not known."""


MOST: Final = 40
"""Number of commits to show."""


@attrs.frozen
class TableCommit:
    """One commit.

    :ivar at_ms: time of the commit, in ms since 1970
    :ivar rows: number of added rows
    :ivar files: number of added data files
    :ivar bytes: total size of these files
    :ivar took_ms: duration of the commit, as stored by the writer's next commit; ``None`` until
        then
    """

    at_ms: int
    rows: int
    files: int
    bytes: int
    took_ms: int | None = None


def _of_actions(actions: Iterable[Mapping[str, Any]]) -> tuple[TableCommit, Texts]:
    at_ms = rows = files = size = 0
    texts: Texts = {}
    for each in actions:
        info = each.get("commitInfo", {})
        at_ms = int(info.get("timestamp", at_ms))
        texts = delta.texts_of(info["userMetadata"]) if "userMetadata" in info else texts
        added = each.get("add")
        if added is not None:
            files += 1
            size += int(added["size"])
            rows += int(json.loads(added.get("stats") or "{}").get("numRecords", 0))
    return TableCommit(at_ms, rows, files, size), texts


def _positions(texts: Texts) -> Iterator[Position]:
    """The valid positions; others were not written by lakelog and are ignored."""
    for text in texts.values():
        with suppress(ValueError):
            yield from_text(text)


def _with_times(found: Sequence[tuple[TableCommit, Texts]]) -> list[TableCommit]:
    """Add the duration of each commit; a later position has it under the commit's number."""
    positions_of_commits = [list(_positions(texts)) for _, texts in found]
    took = dict(
        each.took_ms for positions in positions_of_commits for each in positions if each.took_ms
    )
    commits, before = [], set[int]()
    for (commit, _), positions in zip(found, positions_of_commits, strict=True):
        numbers = {each.commit for each in positions}
        new = numbers - before
        before = numbers
        commits.append(attrs.evolve(commit, took_ms=took.get(new.pop()) if len(new) == 1 else None))
    return commits


_Sink = TypeVar("_Sink", delta.DeltaSink, iceberg.IcebergSink, parquet.ParquetSink)


@attrs.frozen
class RowsOfSink(Generic[_Sink]):
    """Reads the table of a sink; the base of each kind's class.

    :ivar sink: the table
    """

    sink: _Sink

    @property
    def name(self) -> str:
        """The table's name in messages."""
        return self.sink.name

    def position(self, store: str) -> Position | None:
        """The position in the newest version; for Iceberg maybe from the table's property."""
        return self.sink.head(store).position

    def texts(self) -> Texts:
        """The texts of the positions of all stores, as far as commits show them."""
        return self.sink.texts()

    def folder(self) -> remote.Folder:
        """The folder of the data files."""
        return self.sink.folder


class ParquetRows(RowsOfSink[parquet.ParquetSink]):
    """Reads a Parquet table."""

    def columns(self) -> Mapping[str, str]:
        """The columns of all files; of an empty table, those of its future files."""
        schema = self.sink.schema() or self.sink.layout.columns
        return {each.name: str(each.type) for each in schema}

    def position(self, store: str) -> Position | None:
        """The position in the newest manifest."""
        return self.sink.position(store)

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read file by file; a file is only open while it is read."""
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
        return TableSize(rows, len(files), size, len(self.sink.versions()))

    def commits(self) -> list[TableCommit]:
        """The last commits from the manifests."""
        before, found = set[str](), []
        for at_ms, texts, entries, is_whole in self.sink.history(MOST):
            new = [each for each in entries if each["path"] not in before]
            rows, size = (sum(int(each[name]) for each in new) for name in ("rows", "size_bytes"))
            before = {each["path"] for each in entries} | (set() if is_whole else before)
            found.append((TableCommit(at_ms, rows, len(new), size), texts))
        return _with_times(found)


@attrs.frozen
class Added:
    """One file of a Delta table.

    :ivar named: its path in the log
    :ivar path: its location
    :ivar partition: values of the columns that the file does not have
    :ivar begins: its smallest physical offset; ``None`` if the log has no statistics for it
    """

    named: str
    path: remote.Folder
    size_bytes: int
    partition: Mapping[str, Any]
    begins: int | None = None


class DeltaRows(RowsOfSink[delta.DeltaSink]):
    """Reads a Delta table."""

    def columns(self) -> Mapping[str, str]:
        """The columns of the newest version."""
        fields = self._table().schema().fields
        return {each.name: str(getattr(each.type, "type", each.type)) for each in fields}

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read with deltalake."""
        from deltalake.exceptions import DeltaError

        try:
            yield from _of_store(delta_protocol.rows(self._table(), columns), store)
        except DeltaError as error:
            raise NotAMessageTable(self.name, f"deltalake cannot read it ({error})") from error

    def data_files(self) -> list[DataFile]:
        """All files; partition columns are not in them."""
        return [(str(each.path), each.partition) for each in self.actions()]

    def size(self) -> TableSize:
        """The size from the table's log; files without statistics count as 0 rows."""
        table = self._table()
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        rows = sum(each.get("num_records") or 0 for each in actions)
        size = sum(each["size_bytes"] for each in actions)
        return TableSize(rows, len(actions), size, len(table.history()))

    def commits(self) -> list[TableCommit]:
        """The last commits from the log of a local table, as far as it was not cleaned up.

        None for an object store.
        """
        log = self.sink.path / "_delta_log"
        local = log.glob("*.json") if isinstance(log, Path) else ()
        found = []
        for path in sorted(each for each in local if each.stem.isdigit())[-MOST:]:
            with suppress(FileNotFoundError):
                found.append(_of_actions(map(json.loads, path.read_text().splitlines())))
        return _with_times(found)

    def actions(self) -> list[Added]:
        """The files of the newest version; raises the errors of :meth:`data_files`."""
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

        try:
            return delta.opened(self.sink.path)
        except TableNotFoundError as error:
            raise NoTable(str(self.sink.path), "there is no Delta table") from error


def _found(folder: Path, path: str) -> Path:
    """The location of a file of the log, whose path may be percent-encoded, or a URI."""
    if delta_protocol.is_elsewhere(path):
        return remote.local_folder(path)
    plain = folder / path
    return plain if plain.exists() else folder / unquote(path)


def _scanned(rows: Any, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``store``.

    They are filtered here: the data set treats a column without statistics as empty.
    """
    if not set(columns) <= set(rows.schema.names):
        return  # it has no files yet
    batches = rows.to_batches(
        columns=list(columns), batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1
    )
    yield from _of_store(batches, store)


def _of_store(batches: Iterable[pa.RecordBatch], store: str | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kept = batch if store is None else batch.filter(pc.equal(batch.column("store"), store))
        if kept.num_rows:
            yield kept


class IcebergRows(RowsOfSink[iceberg.IcebergSink]):
    """Reads an Iceberg table."""

    def columns(self) -> Mapping[str, str]:
        """The columns of the newest version."""
        return {each.name: str(each.field_type) for each in self.table().schema().fields}

    def batches(self, store: str | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Scan in batches of a bounded number of rows."""
        from pyiceberg.expressions import AlwaysTrue, EqualTo

        condition = AlwaysTrue() if store is None else EqualTo("store", store)  # type: ignore[call-arg,arg-type]  # pyiceberg's __init__ takes them
        scan = self.table().scan(condition, selected_fields=tuple(columns))
        for batch in scan.to_arrow_batch_reader():
            for at in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(at, BATCH_ROWS)

    def folder(self) -> remote.Folder:
        """The folder of the data files, by the table's location."""
        found = self.table()
        return iceberg.data_folder(found.location(), remote.pairs(found.io.properties))

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
        """The last commits from the summaries of the snapshots that are kept."""
        snapshots = self.table().metadata.snapshots
        names = ("added-records", "added-data-files", "added-files-size")
        found = []
        for each in sorted(snapshots, key=lambda each: each.timestamp_ms)[-MOST:]:
            summary = each.summary.additional_properties if each.summary else {}
            counts = (int(summary.get(name) or 0) for name in names)
            found.append((TableCommit(each.timestamp_ms, *counts), texts_in(summary)))
        return _with_times(found)

    def table(self) -> Table:
        """The newest version; raises :class:`NoTable`."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self.sink.load()
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            spaces = map(self.sink.catalog.list_tables, self.sink.catalog.list_namespaces())
            known = ", ".join(".".join(each) for space in spaces for each in space) or "none"
            raise NoTable(self.name, f"the catalog has no such table; it has {known}") from error


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Convert errors of Arrow and the file system in the block to :class:`Unreadable`."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        first = str(error).strip().splitlines()[0]
        raise Unreadable(f"{name}: a data file of it cannot be read: {first}") from error


@attrs.frozen
class OpenTable:
    """One of the tables that a target names.

    :ivar topic: the only topic of the table; ``None`` for all
    :ivar dead_letters: the table of bodies that did not parse
    """

    table: LandedTable
    topic: str | None = None
    dead_letters: LandedTable | None = None

    @property
    def each(self) -> list[LandedTable]:
        """The table and its dead letters, one by one."""
        return [self.table, *([] if self.dead_letters is None else [self.dead_letters])]


def all_opened(
    to: str,
    table: str | None = None,
    dead_letters: str | None = None,
    storage: Mapping[str, str] | None = None,
) -> list[OpenTable]:
    """Open the table, or for a name with ``{topic}`` those of all topics.

    :param dead_letters: the name of the table of dead letters, if it is not the default
    :param storage: options of the object store, or properties of the catalog

    Raises :class:`NoTable` if there is none, and :class:`NotAMessageTable`.
    """
    place = location_of(to, storage)
    name = place.table(table)
    dead = place.dead_letters(name, dead_letters)
    if not is_template(name):
        return [OpenTable(_one(place, to, name), None, _if_there(place, to, dead))]
    with table_errors(to):
        why = None if place.names_are_paths else place.why_not_there(name)
        topics = sorted(place.topics(name)) if why is None else []
    if not topics:
        raise NoTable(to, why or f"there is no table of a topic under {name}")
    return [
        OpenTable(
            _one(place, to, named(name, topic)), topic, _if_there(place, to, named(dead, topic))
        )
        for topic in topics
    ]


def _one(place: TableLocation, to: str, name: str) -> LandedTable:
    with table_errors(to):
        why = place.why_not_there(name)
        if why is not None:
            raise NoTable(to, why)
        sink = place.sink(name, shape.TableShape())
    found: LandedTable
    if isinstance(sink, parquet.ParquetSink):
        found = ParquetRows(sink)
    elif isinstance(sink, delta.DeltaSink):
        found = DeltaRows(sink)
    else:
        found = IcebergRows(sink) if isinstance(sink, iceberg.IcebergSink) else place.rows(name)
    with table_errors(found.name), readable(found.name):
        missing = set(KEY) - set(found.columns())
    if missing:
        raise NotAMessageTable(found.name, f"it has no column {', '.join(sorted(missing))}")
    return found


def _if_there(place: TableLocation, to: str, name: str) -> LandedTable | None:
    try:
        return _one(place, to, name)
    except NoTable:
        return None


def landed_name(path: Path, identity: str, tables: Iterable[LandedTable]) -> str:
    """The name of the store in ``path`` in tables where its log landed under another one."""
    if identity != store_name(path):
        return identity  # the user has named it
    with lakelog.open(path, mode="read") as log:
        return landed_as(log, identity, [each.texts() for each in tables])


def position_of(table: LandedTable, store: str) -> Position:
    """The position of ``store``; raises :class:`NotLanded`."""
    position = table.position(store)
    if position is None:
        raise NotLanded(table.name, store, stores_in(table))
    return position


def stores_in(table: LandedTable) -> set[str]:
    """The stores that have rows in a table."""
    return {
        str(each)
        for batch in table.batches(None, [shape.STORE])
        for each in batch.column(0).unique().to_pylist()
    }
