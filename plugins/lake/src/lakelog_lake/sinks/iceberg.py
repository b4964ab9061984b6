"""An Iceberg table, written with pyiceberg, without a JVM; and the catalogs that have such tables.

The positions of all stores are properties of the snapshot that a commit makes
(``lakelog.position.STORE``, see :mod:`lakelog_lake.tables.position`). The same commit sets them as
properties of the table, each with the snapshot's id. They outlive the snapshot, and are not rolled
back with the table. The snapshots that led to a version are read by pyiceberg here, and by Java in
Spark.

A commit requires that the branch is still at the snapshot from which the position was read, and is
tried once.

Types of columns are compared as texts without ids, such as ``list<string>``.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import attrs
import pyarrow as pa

from lakelog.errors import SettingsError
from lakelog_lake.errors import Conflict, DemandsUnmet, TableElsewhere
from lakelog_lake.sinks.base import (
    METADATA,
    OF_TABLES,
    Head,
    Kinds,
    check_partition,
    check_place,
    check_topic,
    missing,
)
from lakelog_lake.sinks.iceberg_history import TableSnapshots
from lakelog_lake.tables import data_files, remote, settings
from lakelog_lake.tables import position as positions
from lakelog_lake.tables.position import Position
from lakelog_lake.tables.shape import Layout, TableShape, demanding, file_schema, fits

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

    from lakelog_lake.sinks.iceberg_copies import WarehouseCopy
    from lakelog_lake.sinks.iceberg_expiry import SnapshotExpiry
    from lakelog_lake.sinks.iceberg_internals import SteadyTransaction

IN_FILES: Final = (
    (".list.element", ".element"),
    (".key_value.key", ".key"),
    (".key_value.value", ".value"),
)
"""The names of nested columns in Parquet, and in Iceberg."""


def wanted(columns: pa.Schema) -> Schema:
    """``columns`` with ids in the order of the fields, those of nested fields last."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema
    from pyiceberg.schema import assign_fresh_schema_ids

    any_ids = defaultdict[str, int](count(1).__next__)  # pyiceberg takes no columns without ids
    return assign_fresh_schema_ids(pyarrow_to_schema(file_schema(Layout(columns, (), any_ids))))


def text_of(kind: Any) -> str:
    """A type as text, without ids."""
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(kind, ListType):
        return f"list<{text_of(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{text_of(kind.key_type)},{text_of(kind.value_type)}>"
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{e.name}:{text_of(e.field_type)}' for e in kind.fields)}>"
    return str(kind)


def kinds(schema: Schema) -> Kinds:
    """The types and demands of the top-level columns of ``schema``."""
    types = {each.name: text_of(each.field_type) for each in schema.fields}
    return Kinds(
        types,
        frozenset(each.name for each in schema.fields if each.required),
        frozenset(each.name for each in schema.fields if each.write_default is not None),
    )


def required(schema: Schema, ours: pa.Schema) -> pa.Schema:
    """The columns of ``schema``, of those in ``ours``, that must not be null in some part."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return demanding(schema_to_pyarrow(schema, include_field_ids=False), ours.names)


_CODECS: Final = {"uncompressed": "none", "zstd": "auto"}
"""Names of lakelog's settings for those of Iceberg; zstd is what ``auto`` takes."""


def file_settings(properties: Mapping[str, str]) -> settings.FileSettings:
    """What the properties of a table say of its data files; a value that is unknown counts not."""
    codec = properties.get("write.parquet.compression-codec", "zstd").lower()
    size = properties.get("write.target-file-size-bytes", "")
    named = _CODECS.get(codec, codec)
    known = settings.ParquetCompression
    compression = known(named) if named in set(known) else known.AUTO
    level = properties.get("write.parquet.compression-level", "")
    levels = data_files.levels(compression)
    return settings.FileSettings(
        compression,
        int(size) if size.isdecimal() else None,
        int(level) if level.isdecimal() and int(level) in levels else None,
    )


def ids(schema: Schema) -> dict[str, int]:
    """The id of each column by its name, nested ones included."""
    return dict(_ids("", schema.as_struct()))


def _ids(prefix: str, kind: Any) -> Iterator[tuple[str, int]]:
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(kind, StructType):
        inside = [(each.name, each.field_id, each.field_type) for each in kind.fields]
    elif isinstance(kind, ListType):
        inside = [("element", kind.element_id, kind.element_type)]
    elif isinstance(kind, MapType):
        inside = [("key", kind.key_id, kind.key_type), ("value", kind.value_id, kind.value_type)]
    else:
        inside = []
    for name, number, nested in inside:
        yield prefix + name, number
        yield from _ids(f"{prefix}{name}.", nested)


def in_table(name: str) -> str:
    """Convert a column path of a Parquet file to the column's name in the table.

    >>> in_table("properties.key_value.key"), in_table("a.list.element.b"), in_table("body")
    ('properties.key', 'a.element.b', 'body')
    """
    for there, here in IN_FILES:
        name = name.replace(there, here)
    return name


def _age(history: str) -> dict[str, str]:
    """The property for a history that is a time."""
    found = settings.kept(history)
    seconds = 0 if found is None else found.seconds
    return {settings.MAX_AGE: str(seconds * 1000)} if seconds else {}


TABLE_PROPERTIES: Final = {
    "format-version": "2",
    "write.format.default": "parquet",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
    "write.metadata.metrics.column.body": "none",
    "write.metadata.metrics.column.properties": "none",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    settings.HISTORY: settings.DEFAULT_HISTORY,
    **_age(settings.DEFAULT_HISTORY),
}
TOPIC: Final = "lakelog.topic"
"""The table property with the only topic of a table."""
_MOST: Final = 300
_NEWEST_FORMAT: Final = 2
"""The newest version of tables that pyiceberg writes."""


def fitted(table: Table, name: str, shape: TableShape) -> Table:
    """Return ``table`` with all columns; raises ``TableMismatch`` if it cannot take the rows."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import Schema

    if table.metadata.format_version > _NEWEST_FORMAT:
        raise DemandsUnmet(name, [f"its format version {table.metadata.format_version}"])
    ours, found = wanted(shape.columns), kinds(table.schema())
    known = schema_to_pyarrow(table.schema(), include_field_ids=False)

    def grows(column: str) -> bool:
        return fits(known.field(column).type, shape.columns.field(column).type, widens=True)

    missing(name, found, kinds(ours), grows)
    check_partition(name, partition_of(table.schema(), table.spec()), shape.partition)
    check_topic(name, table.properties.get(TOPIC), shape.topic)
    # pyiceberg makes a required column optional if it is optional in what is added
    changed = [
        each.model_copy(update={"required": each.name in found.required})
        for each in ours.fields
        if found.types.get(each.name) != text_of(each.field_type)
    ]
    if changed:
        with table.update_schema() as update:
            update.union_by_name(Schema(*changed))
        table.refresh()
    return table


def partition_of(schema: Schema, spec: PartitionSpec) -> tuple[str, ...]:
    """The partition keys; ``bucket[8](queue_id)`` and the like for other transforms."""
    parts = (
        (schema.find_column_name(each.source_id) or "", str(each.transform)) for each in spec.fields
    )
    return tuple(_KEYS.get(part, f"{part[1]}({part[0]})") for part in parts)


TRANSFORMS: Final = {
    "topic": ("topic", "identity"),
    "store": ("store", "identity"),
    "day": ("store_timestamp", "day"),
    "hour": ("store_timestamp", "hour"),
}
"""The column and transform of each partition key."""
_KEYS: Final = {part: key for key, part in TRANSFORMS.items()}
_FIRST_PARTITION_ID: Final = 1000


def _partitions(schema: Schema, keys: Sequence[str]) -> PartitionSpec:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import parse_transform

    fields = []
    for number, part in enumerate(keys, _FIRST_PARTITION_ID):
        column, transform = TRANSFORMS[part]
        name = column if transform == "identity" else f"{column}_{transform}"
        source = schema.find_field(column).field_id
        fields.append(PartitionField(source, number, parse_transform(transform), name))
    return PartitionSpec(*fields)


def data_file(schema: Schema, spec_id: int, facts: data_files.FileFacts, uri: str) -> DataFile:
    """The manifest entry of a file."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    def by_id(values: Any) -> dict[int, Any]:
        return {schema.find_field(in_table(name)).field_id: it for name, it in values.items()}

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=Record(*facts.partition.values()),
        record_count=facts.rows,
        file_size_in_bytes=facts.size_bytes,
        column_sizes=by_id(facts.column_sizes),
        value_counts=by_id(facts.value_counts),
        null_value_counts=by_id(facts.null_counts),
        nan_value_counts={},
        lower_bounds=by_id(_bounds(schema, facts.lower)),
        upper_bounds=by_id(_bounds(schema, facts.upper)),
        key_metadata=None,
        split_offsets=sorted(facts.row_groups),
        equality_ids=None,
        sort_order_id=None,
        spec_id=spec_id,
    )


def _bounds(schema: Schema, values: Any) -> dict[str, bytes]:
    """Bounds in Iceberg's single-value binary serialization."""
    from pyiceberg.conversions import to_bytes

    return {
        name: to_bytes(schema.find_field(name).field_type, value)  # type: ignore[arg-type]  # these columns have primitive types
        for name, value in values.items()
    }


SYNCED: Final = {"py-io-impl": "lakelog_lake.tables.synced_io.SyncedFileIO"}
"""The subclass of pyiceberg's Arrow FileIO that syncs local files."""


def default_catalog() -> str:
    """The name of pyiceberg's default catalog."""
    from pyiceberg.utils.config import Config

    return Config().get_default_catalog_name()


def configured_catalog(name: str, given: Mapping[str, str]) -> Catalog:
    """Load the catalog ``name`` from pyiceberg's files and environment variables.

    :param given: properties that override the configured ones

    Raises :class:`~lakelog.errors.SettingsError` if it is not configured or a package is missing,
    and pyiceberg's errors if it cannot be reached.
    """
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NotInstalledError
    from pyiceberg.utils.config import Config

    from lakelog_lake.sinks.iceberg_internals import steady

    known = Config().get_catalog_config(name)
    if known is None and not given:
        raise SettingsError(
            f"pyiceberg has no catalog {name!r}: give its uri and type in ~/.pyiceberg.yaml, as "
            f"PYICEBERG_CATALOG__{name.upper()}__URI and so on, or by --storage uri=…",
            key="--to",
        )
    properties = {**cast("dict[str, str]", known or {}), **given}
    try:
        found = load_catalog(name, **{**SYNCED, **_from_environment(properties), **properties})
        return steady(found)
    except NotInstalledError as error:
        raise SettingsError(f"the catalog {name!r} needs a package: {error}", key="--to") from error
    except ValueError as error:
        raise SettingsError(f"the catalog {name!r} cannot be used: {error}", key="--to") from error


def _from_environment(properties: Mapping[str, object]) -> dict[str, str]:
    """S3 properties from environment variables that Arrow does not read by itself."""
    endpoint = _first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    region = _first("AWS_REGION", "AWS_DEFAULT_REGION")
    if region is None and (endpoint or "s3.endpoint" in properties):
        region = "us-east-1"
    found = {"s3.endpoint": endpoint, "client.region": region}
    return {name: value for name, value in found.items() if value is not None}


def _first(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


CATALOG: Final = "lake"
"""The name of the catalog; Spark's must be the same to find the tables."""
CATALOG_FILE: Final = "catalog.db"
_SQLITE: Final = "sqlite:///"


def sqlite_catalog(warehouse: Path) -> Catalog:
    """A catalog in a file of the warehouse, which Spark's JDBC catalog can open too.

    SQLite syncs the catalog; ``synced_io`` syncs the files that it points to before that.
    """
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.exc import OperationalError

    from lakelog_lake.sinks.iceberg_internals import steady

    warehouse.mkdir(parents=True, exist_ok=True)
    place = warehouse.absolute()
    uri = f"{_SQLITE}{place / CATALOG_FILE}"
    try:
        return steady(SqlCatalog(CATALOG, uri=uri, warehouse=f"file://{place}", **SYNCED))
    except OperationalError as error:
        # pyiceberg checks for its tables, then creates them; another process may do so in between
        if "already exists" not in str(error):
            raise
        return steady(SqlCatalog(CATALOG, uri=uri, warehouse=f"file://{place}", **SYNCED))


@attrs.define(slots=False)
class IcebergSink:
    """A sink that is an Iceberg table.

    :ivar catalog: any of pyiceberg's
    :ivar table: ``NAMESPACE.TABLE``
    :ivar warehouse: the URI below which to create the table; by default the catalog chooses
    :ivar within: the local folder that must have the files of the table; ``None`` for any place
    :ivar clock: returns seconds since 1970, for the retention of versions
    :ivar layout: the columns and partitions, with the field ids of the table
    """

    catalog: Catalog
    table: str
    shape: TableShape = attrs.field(factory=TableShape)
    warehouse: str | None = None
    within: Path | None = None
    clock: Callable[[], float] = time.time
    _location: str = ""
    _properties: remote.Pairs = attrs.field(default=(), repr=False)
    layout: Layout = attrs.field(factory=Layout)
    _known: dict[str, positions.KnownPositions] = attrs.field(
        factory=dict, init=False, repr=False, eq=False
    )

    @property
    def name(self) -> str:
        """The catalog and name of the table, for messages."""
        return f"the Iceberg table {self.catalog.name}.{self.table}"

    @property
    def folder(self) -> remote.Folder:
        """The folder of the data files."""
        return data_folder(self._location, self._properties)

    def prepare(self) -> None:
        """Create the table, or add missing columns; a table of a copied warehouse is adopted."""
        copied = self._copy()
        if copied is not None:
            copied.adopt()
        root = self.warehouse
        place = None if root is None else "/".join([root.rstrip("/"), *self.table.split(".")])
        table = fitted(self._made(place), self.name, self.shape)
        self._location, self._properties = table.location(), remote.pairs(table.io.properties)
        self.layout = Layout(
            self.shape.columns,
            self.shape.partition,
            ids(table.schema()),
            required(table.schema(), self.shape.columns),
            file_settings(table.properties),
            form=_form(table),
        )
        folder = self.folder
        if isinstance(folder, Path):
            folder.mkdir(parents=True, exist_ok=True)
            for each in (folder.parent, *list(folder.parents)[1:3]):
                remote.sync(each)

    def _made(self, location: str | None) -> Table:
        """Create the table if it does not exist; tolerates a concurrent creation.

        :param location: location of a new table; ``None`` leaves it to the catalog
        """
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        with suppress(NoSuchTableError):
            return self.load()
        location = location or self._free_place()
        self.catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
        schema, shape = wanted(self.shape.columns), self.shape
        topic = {} if shape.topic is None else {TOPIC: shape.topic}
        try:
            return self.catalog.create_table(
                self.table,
                schema,
                location=location,
                partition_spec=_partitions(schema, shape.partition),
                properties={**TABLE_PROPERTIES, **topic},
            )
        except TableAlreadyExistsError:
            return self.load()

    def _free_place(self) -> str | None:
        """Where to create the table, if the catalog's own place has files of another table.

        Such as one that was renamed, or dropped without its files.
        """
        if self.within is None:
            return None
        place = self.within.joinpath(*self.table.split("."))
        check_place(self.name, place, METADATA)
        if not any(place.glob(OF_TABLES[METADATA])):
            return None
        return f"file://{place}-{uuid4().hex}"

    def load(self) -> Table:
        """The newest version of the table, from the catalog.

        Raises :class:`~lakelog_lake.errors.TableElsewhere`,
        :class:`~lakelog_lake.errors.DemandsUnmet`, and pyiceberg's ``NoSuchTableError``.
        """
        from pyiceberg.exceptions import ValidationError

        try:
            table = self.catalog.load_table(self.table)
        except FileNotFoundError as error:
            if self.within is None or f"{self.within.resolve()}/" in str(error):
                raise
            raise TableElsewhere(
                self.name, self.within, f"a place that is gone ({error})"
            ) from None
        except ValidationError as error:
            why = " ".join(str(error).split())[:_MOST]
            raise DemandsUnmet(
                self.name, [f"its metadata, which pyiceberg cannot read ({why})"]
            ) from error
        return self._checked(table)

    def _checked(self, table: Table) -> Table:
        """Refuse a table in the copy of a folder, whose absolute paths lead to the original."""
        for place in (table.location(), table.metadata_location):
            if self.within is not None and not (
                remote.is_local(place)
                and remote.local_folder(place).resolve().is_relative_to(self.within.resolve())
            ):
                raise TableElsewhere(self.name, self.within, table.location())
        return table

    def _copy(self) -> WarehouseCopy | None:
        """The table as one of a copied warehouse, until it is adopted."""
        from lakelog_lake.sinks.iceberg_copies import WarehouseCopy

        properties = self.catalog.properties
        file = Path(str(properties.get("uri", "")).removeprefix(_SQLITE))
        if not file.is_file():
            return None
        return WarehouseCopy.found(file, self.catalog.name, self.table, properties)

    def marked(self) -> str | None:
        """The only topic of the table; ``None`` if it has all topics or does not exist."""
        from pyiceberg.exceptions import NoSuchTableError

        copied = self._copy()
        if copied is not None:
            return copied.metadata().properties.get(TOPIC)
        try:
            return self.load().properties.get(TOPIC)
        except NoSuchTableError:
            return None

    def head(self, store: str, resume: settings.Resume | None = None) -> Head:
        """Load the table from the catalog."""
        found = self._newest()
        return Head.of(found, store, resume, _form(found.table))

    def texts(self) -> Mapping[str, str]:
        """The texts of the positions of all stores, as far as commits show them."""
        return self._newest().known.texts

    def _newest(self) -> positions.TableVersion:
        table = self.load()
        version = table.metadata_location
        self._properties = remote.pairs(table.io.properties)  # credentials may expire
        return positions.cached_version(
            self._known, version, table, TableSnapshots(table), self.name
        )

    def commit(
        self, head: Head, store: str, files: Sequence[data_files.FileFacts], position: Position
    ) -> None:
        """Commit one transaction, without retries."""
        self.finish(self.begun(head), head, store, files, position)

    def begun(self, head: Head) -> SteadyTransaction:
        """A transaction on a version of the table, for :meth:`finish`."""
        from lakelog_lake.sinks.iceberg_internals import SteadyTransaction

        return SteadyTransaction(head.version.table)

    def finish(
        self,
        transaction: SteadyTransaction,
        head: Head,
        store: str,
        files: Sequence[data_files.FileFacts],
        position: Position,
    ) -> None:
        """Add ``files`` and the position to a transaction, and commit it."""
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId

        properties = head.version.known.properties(store, position)
        table = head.version.table
        schema, spec_id = table.schema(), table.metadata.default_spec_id
        added = (data_file(schema, spec_id, each, self._uri(each.path)) for each in files)
        snapshot, committed = self._expiry.append(transaction, added, properties)
        transaction.set_properties(positions.marks(properties, snapshot))
        built_on = (  # a catalog compares only the snapshot by itself
            AssertCurrentSchemaId(**{"current-schema-id": schema.schema_id}),
            AssertDefaultSpecId(**{"default-spec-id": spec_id}),
        )
        try:
            transaction.commit_once(*built_on)
        except CommitFailedException as error:
            raise Conflict(f"{self.name} was changed by another writer: {error}") from error
        committed()

    @cached_property
    def _expiry(self) -> SnapshotExpiry:
        from lakelog_lake.sinks.iceberg_expiry import SnapshotExpiry

        return SnapshotExpiry(self.clock)

    def keep(self, history: str) -> None:
        """Set the history that the table keeps, see :mod:`lakelog_lake.tables.settings`."""
        table = self.load()
        if table.properties.get(settings.HISTORY) != history:
            wanted = {settings.HISTORY: history, **_age(history)}
            table.transaction().set_properties(wanted).commit_transaction()

    def _uri(self, path: str) -> str:
        """The URI of a data file, below the table's location."""
        if not remote.is_local(self._location):
            return path
        within = Path(path).relative_to(remote.local_folder(self._location))
        return f"{self._location.rstrip('/')}/{within}"


def data_folder(location: str, properties: remote.Pairs) -> remote.Folder:
    """The folder of the data files of a table.

    :param properties: those of the table's FileIO
    """
    if remote.is_local(location):
        return remote.local_folder(location) / "data"
    return remote.Remote(f"{location.rstrip('/')}/data", remote.IcebergFiles(properties))


def _form(table: Table) -> Hashable:
    """The columns and partitions of a table, and which table it is."""
    metadata = table.metadata
    numbers = (metadata.format_version, metadata.current_schema_id, metadata.default_spec_id)
    return (str(metadata.table_uuid), table.location(), *numbers)
