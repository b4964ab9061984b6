"""``spark:CATALOG``: Iceberg tables of any catalog of Spark, through Iceberg's Java classes.

The position is stored as in :mod:`lakelog_lake.sinks.iceberg`, under the same keys, so that both
can write to one table in turn.

A commit is an append and the property in one change of the table's metadata. The catalog accepts it
only if the table still has the version from which the position was read. After a conflict,
Iceberg's own ``commit`` would rebase the append on the newer version, and land a range twice: its
check for conflicting data files misses commits that only change a position. So Iceberg only builds
the metadata here. Any other change of the table, even a compaction, is a conflict.

For a local table, manifests are synced before the commit, and the metadata file, which Java writes
during the commit, directly after it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs

from lakelog.errors import SettingsError
from lakelog_lake.errors import ClockBehind, Conflict, TableElsewhere
from lakelog_lake.sinks import iceberg, iceberg_history, locations
from lakelog_lake.sinks.base import Head, Sink, check_partition, check_topic, missing
from lakelog_lake.tables import position as positions
from lakelog_lake.tables import settings
from lakelog_lake.tables.data_files import FileFacts
from lakelog_lake.tables.position import Position
from lakelog_lake.tables.remote import is_local, local_folder, sync
from lakelog_lake.tables.shape import DAY, Layout, TableShape
from lakelog_spark.sessions import ICEBERG, check_package, need_jvm

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyspark.sql import DataFrame, SparkSession

SPARK: Final = "spark:"
"""The prefix of such locations."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
_REFUSED: Final = "org.apache.iceberg.exceptions.CommitFailedException"
_LARGEST_FALL_SECONDS: Final = 60
"""By so much the times of a table may fall, for Iceberg's Java library."""
_METADATA_PATH: Final = "write.metadata.path"
_LEAST_PARTS: Final = 3


def catalog_in(to: str) -> str | None:
    """The catalog of ``spark:CATALOG``; ``None`` for any other location.

    Raises :class:`~lakelog.errors.SettingsError` for an invalid name, or without pyiceberg.
    """
    if not to.startswith(SPARK):
        return None
    if find_spec("pyiceberg") is None:
        raise SettingsError(
            f"{SPARK}CATALOG needs pyiceberg, which is not installed: pip install 'lakelog[spark]'",
            key="--to",
        )
    catalog = to.removeprefix(SPARK)
    if not catalog or not catalog.replace("_", "a").isalnum():
        raise SettingsError(f"{to!r} is not {SPARK}CATALOG with a catalog of Spark", key="--to")
    return catalog


@attrs.frozen
class SparkCatalogLocation(locations.TableLocation):
    """The tables of one catalog; each has a name, ``NAMESPACE.TABLE``."""

    session: SparkSession
    catalog: str
    kind: ClassVar[str] = "iceberg"

    @property
    def text(self) -> str:
        """The location as text."""
        return f"{SPARK}{self.catalog}"

    def table(self, given: str | None) -> str:
        """The name of the table, or a template; raises :class:`~lakelog.errors.SettingsError`."""
        if given is None or "." not in given.strip("."):
            raise SettingsError(f"{self.text} needs NAMESPACE.TABLE, not {given}", key="--table")
        return given

    def sink(self, name: str, shape: TableShape) -> Sink:
        """The sink of a table, which may not exist yet."""
        return spark_iceberg_sink(self.session, f"{self.catalog}.{name}", shape)

    def beside(self, name: str) -> list[str]:
        """The last part of the names of all tables in the namespace of the table ``name``."""
        namespace = f"`{self.catalog}`.`{name.rpartition('.')[0].replace('.', '`.`')}`"
        self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        found = self.session.sql(f"SHOW TABLES IN {namespace}").collect()
        return sorted(str(each["tableName"]) for each in found)


def spark_iceberg_sink(
    session: SparkSession, table: str, shape: TableShape | None = None
) -> SparkIcebergSink:
    """A table of a catalog of ``session``: ``CATALOG.NAMESPACE.TABLE``.

    :param shape: its expected form; by default all topics with raw bodies

    Raises :class:`~lakelog.errors.SettingsError`, and
    :class:`~lakelog_lake.errors.WrongSpark` if the session lacks Iceberg's jar.
    """
    need_jvm(session)
    if len(table.split(".")) < _LEAST_PARTS or not all(table.split(".")):
        raise SettingsError(f"{table!r} is not CATALOG.NAMESPACE.TABLE", key="table")
    check_package(session, ICEBERG)
    return SparkIcebergSink(session, table, TableShape() if shape is None else shape)


@attrs.define
class SparkIcebergSink:
    """One table, through a session of this process.

    :ivar table: ``CATALOG.NAMESPACE.TABLE``
    :ivar shape: its columns and partitions
    """

    session: SparkSession
    table: str
    shape: TableShape
    _location: str = attrs.field(default="", init=False)
    _fields: Any = attrs.field(default=None, init=False)
    _form: Hashable = attrs.field(default=None, init=False)
    _files: settings.FileSettings = attrs.field(factory=settings.FileSettings, init=False)
    _known: dict[str, positions.KnownPositions] = attrs.field(
        factory=dict, init=False, repr=False, eq=False
    )

    @property
    def name(self) -> str:
        """The name of the table in messages."""
        return f"the Iceberg table {self.table}"

    @property
    def folder(self) -> Path:
        """The folder of the data files."""
        return local_folder(self._location) / "data"

    @property
    def layout(self) -> Layout:
        """The columns and partitions, with the field ids of the table."""
        columns, fields = self.shape.columns, self._fields
        ids, required = iceberg.ids(fields), iceberg.required(fields, columns)
        keys, files = self.shape.partition, self._files
        return Layout(columns, keys, ids, required, files, form=self._form)

    def prepare(self) -> None:
        """Create the table, or add missing columns.

        Raises :class:`~lakelog_lake.errors.TableMismatch` for a catalog in an object store.
        """
        if not self._is_there():
            namespace = _quoted(self.table.rpartition(".")[0])
            self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
            local_folder(self._planned_location())
            self.session.sql(_creation(_quoted(self.table), self.shape))
        table = self._load()
        lacks = self._check(table)
        if lacks:
            columns = _columns(self.shape.columns, lacks)
            self.session.sql(f"ALTER TABLE {_quoted(self.table)} ADD COLUMNS ({columns})")
            table = self._load()
        self._location, self._fields = str(table.location()), self._schema(table)
        self._form = _form(table.operations().current())
        self._files = iceberg.file_settings(dict(table.properties()))
        self.folder.mkdir(parents=True, exist_ok=True)
        sync(self.folder.parent)

    def _planned_location(self) -> str:
        """Where the catalog would put the table; nothing is created."""
        catalog, _, name = self.table.partition(".")
        found = self._iceberg.spark.Spark3Util.loadIcebergCatalog(
            self.session._jsparkSession, catalog
        )
        schema = iceberg.wanted(self.shape.columns).model_dump_json()
        planned = found.newCreateTableTransaction(
            self._iceberg.catalog.TableIdentifier.parse(name),
            self._iceberg.SchemaParser.fromJson(schema),
        )
        return str(planned.table().location())

    def _check(self, table: Any) -> list[str]:
        """The columns to add; raises ``TableMismatch``."""
        from pyiceberg.partitioning import PartitionSpec

        schema = self._schema(table)
        text = self._iceberg.PartitionSpecParser.toJson(table.spec())
        found = iceberg.partition_of(schema, PartitionSpec.model_validate_json(text))
        ours = iceberg.kinds(iceberg.wanted(self.shape.columns))
        lacks = missing(self.name, iceberg.kinds(schema), ours)
        check_partition(self.name, found, self.shape.partition)
        check_topic(self.name, table.properties().get(iceberg.TOPIC), self.shape.topic)
        return lacks

    def _schema(self, table: Any) -> Schema:
        from pyiceberg.schema import Schema

        return Schema.model_validate_json(self._iceberg.SchemaParser.toJson(table.schema()))

    def marked(self) -> str | None:
        """The only topic of the table; ``None`` if it has all topics or does not exist."""
        properties = self._load().properties() if self._is_there() else {}
        found = properties.get(iceberg.TOPIC)
        return None if found is None else str(found)

    def head(self, store: str, resume: settings.Resume | None = None) -> Head:
        """Load the table from the catalog."""
        operations = self._load().operations()
        metadata = operations.current()
        handles = (operations, metadata)  # Java's TableOperations and TableMetadata
        location = str(metadata.metadataFileLocation())
        line = _Snapshots(
            self.session,
            _quoted(self.table),
            metadata,
            partial(self._iceberg.TableMetadataParser.read, operations.io()),
        )
        found = positions.cached_version(self._known, location, handles, line, self.name)
        return Head.of(found, store, resume, _form(metadata))

    def commit(
        self, head: Head, store: str, files: Sequence[FileFacts], position: Position
    ) -> None:
        """Commit one change of the metadata, without retries."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types

        operations, metadata = head.version.table
        behind_seconds = metadata.lastUpdatedMillis() / 1000 - time.time()
        if behind_seconds > _LARGEST_FALL_SECONDS:
            raise ClockBehind(self.name, behind_seconds)
        try:
            changed = self._changed(head.version, store, position, files)
            self._sync_manifests(changed)
            operations.commit(metadata, changed)
            self._sync(operations.current().metadataFileLocation())
        except Py4JJavaError as error:
            found = error.java_exception
            if found.getClass().getName() != _REFUSED:
                raise
            raise Conflict(
                f"{self.name} was changed by another writer: {found.getMessage()}"
            ) from error

    def _changed(
        self,
        version: positions.TableVersion,
        store: str,
        position: Position,
        files: Sequence[FileFacts],
    ) -> Any:
        """The metadata with ``files`` and the position; writes its manifests."""
        operations, metadata = version.table
        transaction = self._iceberg.Transactions.newTransaction(self.table, operations)
        properties = version.known.properties(store, position)
        append = transaction.newAppend()
        for name, value in properties.items():
            append = append.set(name, value)
        for each in self._data_files(metadata, files):
            append.appendFile(each)
        append.commit()
        update = transaction.updateProperties()
        snapshot = transaction.table().currentSnapshot().snapshotId()
        for name, value in positions.marks(properties, snapshot).items():
            update = update.set(name, value)
        update.commit()
        return transaction.table().operations().current()

    def _data_files(self, metadata: Any, files: Sequence[FileFacts]) -> Iterator[Any]:
        mapper, specs = self._iceberg.util.JsonUtil.mapper(), metadata.specsById()
        spec_id, location = metadata.defaultSpecId(), self._location
        for each in files:
            values = [self._value(*part) for part in each.partition.items()]
            uri = f"{location.rstrip('/')}/{Path(each.path).relative_to(local_folder(location))}"
            text = data_file(each, uri, spec_id, self._fields, values)
            yield self._iceberg.ContentFileParser.fromJson(mapper.readTree(text), specs)

    def _sync_manifests(self, metadata: Any) -> None:
        """Sync the files of the snapshot before the catalog refers to them."""
        snapshot = metadata.currentSnapshot()
        for each in snapshot.allManifests(self._load().io()):
            if each.snapshotId() == snapshot.snapshotId():
                self._sync(each.path())
        self._sync(snapshot.manifestListLocation())

    def _sync(self, location: str) -> None:
        path = local_folder(location)
        sync(path)
        sync(path.parent)

    def _value(self, key: str, value: int | str) -> int | str:
        """A partition value in Iceberg's JSON: a day in Java's format, an hour as a number."""
        if key != DAY:
            return value
        try:
            return date.fromordinal(_EPOCH + int(value)).isoformat()
        except (ValueError, OverflowError):  # Java also has years before 1 and after 9999
            java: Any = self.session._jvm
            return str(java.java.time.LocalDate.ofEpochDay(int(value)).toString())

    def _is_there(self) -> bool:
        return self.session.catalog.tableExists(_quoted(self.table))

    def _load(self) -> Any:
        """The newest version of the table, past the catalog's cache."""
        util = self._iceberg.spark.Spark3Util
        table = util.loadIcebergTable(self.session._jsparkSession, _quoted(self.table))
        table.refresh()
        metadata, place = table.operations().current(), str(table.location())
        found = str(metadata.metadataFileLocation())
        is_given = metadata.properties().get(_METADATA_PATH) is not None
        if is_local(place) and is_local(found) and not is_given:
            folder = local_folder(place)
            if not local_folder(found).is_relative_to(folder):
                raise TableElsewhere(self.name, local_folder(found).parent.parent, folder)
        return table

    @property
    def _iceberg(self) -> Any:
        """Iceberg's Java package."""
        java: Any = self.session._jvm
        return java.org.apache.iceberg


@attrs.define(slots=False)
class _Snapshots(iceberg_history.IcebergHistory):
    """A version's snapshots and rows, from Java's ``TableMetadata``.

    A call of Java takes a fraction of a ms.

    :ivar table: the quoted name of the table
    :ivar read: reads an older metadata file
    """

    session: SparkSession
    table: str
    metadata: Any
    read: Callable[[str], Any]

    def properties(self) -> Mapping[str, str]:
        return dict(self.metadata.properties())

    def newest(self) -> int | None:
        found = self.metadata.currentSnapshot()
        return None if found is None else int(found.snapshotId())

    def count(self) -> int:
        return len(self.metadata.snapshots())

    def versions(self) -> Iterator[iceberg_history.SnapshotOf]:
        from py4j.protocol import Py4JJavaError

        yield _snapshots_of(self.metadata)
        for each in reversed(list(self.metadata.previousFiles())):
            try:
                yield _snapshots_of(self.read(each.file()))
            except Py4JJavaError as error:
                if "NotFound" not in error.java_exception.getClass().getName():
                    raise
                return

    def last_rows(self) -> Sequence[pa.RecordBatch]:
        from pyspark.sql import functions

        queue, (queue_offset, place, *others) = positions.LAST_ROWS[:3], positions.LAST_ROWS[3:]
        last = (
            self._rows()
            .groupBy(*queue)
            .agg(
                functions.max(queue_offset).alias(queue_offset),
                *(functions.max_by(each, place).alias(each) for each in others),
                functions.max(place).alias(place),
            )
        )
        batches: Sequence[pa.RecordBatch] = last.select(*positions.LAST_ROWS).toArrow().to_batches()
        return batches

    def holds(self, store: str) -> bool:
        from pyspark.sql import functions

        return not self._rows().where(functions.col("store") == store).isEmpty()

    def _rows(self) -> DataFrame:
        snapshot = self.metadata.currentSnapshot()
        if snapshot is None:
            return self.session.table(self.table).limit(0)
        return self.session.sql(f"SELECT * FROM {self.table} VERSION AS OF {snapshot.snapshotId()}")


def _form(metadata: Any) -> Hashable:
    """The columns and partitions of a table, and which table it is, from Java's metadata."""
    numbers = (int(metadata.currentSchemaId()), int(metadata.defaultSpecId()))
    return (str(metadata.uuid()), str(metadata.location()), *numbers)


def _snapshots_of(metadata: Any) -> iceberg_history.SnapshotOf:
    """Those of one version of Java's metadata."""

    def snapshot_of(number: int) -> iceberg_history.Snapshot | None:
        found = metadata.snapshot(number)
        if found is None:
            return None
        return iceberg_history.Snapshot(
            found.sequenceNumber(), found.parentId(), dict(found.summary())
        )

    return snapshot_of


def data_file(
    facts: FileFacts, uri: str, spec_id: int, schema: Schema, values: Sequence[int | str]
) -> str:
    """The manifest entry of a file, for Java's ``ContentFileParser``.

    :param uri: URI of the file
    :param values: the values of its partition, as in Iceberg's JSON
    """
    made = iceberg.data_file(schema, spec_id, facts, uri)

    def listed(by_id: Mapping[int, Any]) -> dict[str, list[Any]]:
        values = [
            each.hex().upper() if isinstance(each, bytes) else each for each in by_id.values()
        ]
        return {"keys": list(by_id), "values": values}

    return json.dumps(
        {
            "spec-id": spec_id,
            "content": "data",
            "file-path": uri,
            "file-format": "parquet",
            "partition": list(values),
            "file-size-in-bytes": facts.size_bytes,
            "record-count": facts.rows,
            "column-sizes": listed(made.column_sizes),
            "value-counts": listed(made.value_counts),
            "null-value-counts": listed(made.null_value_counts),
            "lower-bounds": listed(made.lower_bounds),
            "upper-bounds": listed(made.upper_bounds),
            "split-offsets": made.split_offsets,
        }
    )


def _quoted(table: str) -> str:
    return ".".join(f"`{part}`" for part in table.split("."))


def _creation(table: str, shape: TableShape) -> str:
    topic = {} if shape.topic is None else {iceberg.TOPIC: shape.topic}
    given = {**iceberg.TABLE_PROPERTIES, **topic}.items()
    properties = ", ".join(f"{_literal(name)} = {_literal(value)}" for name, value in given)
    parts = (iceberg.TRANSFORMS[key] for key in shape.partition)
    made = (name if kind == "identity" else f"{kind}s({name})" for name, kind in parts)
    partitions = f"PARTITIONED BY ({', '.join(made)}) " if shape.partition else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {table} ({_columns(shape.columns, shape.columns.names)}) "
        f"USING iceberg {partitions}TBLPROPERTIES ({properties})"
    )


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _columns(columns: pa.Schema, names: Sequence[str]) -> str:
    from pyspark.sql.pandas.types import from_arrow_schema

    fields = from_arrow_schema(columns).fields
    return ", ".join(f"`{e.name}` {e.dataType.simpleString()}" for e in fields if e.name in names)
