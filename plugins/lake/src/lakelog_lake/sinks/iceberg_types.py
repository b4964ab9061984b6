"""Iceberg's view of a table: schema, types and field ids, partition spec, and data files.

Types of columns are texts without ids, such as ``list<string>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakelog_lake.sinks.base import Kinds, check_partition, check_topic, missing
from lakelog_lake.tables import data_files, settings
from lakelog_lake.tables.shape import TableShape, fits

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

IN_FILES: Final = (
    (".list.element", ".element"),
    (".key_value.key", ".key"),
    (".key_value.value", ".value"),
)
"""The names of nested columns in Parquet, and in Iceberg."""


def wanted(columns: pa.Schema) -> Schema:
    """``columns`` with ids in the order of the fields, those of nested fields last."""
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
    from pyiceberg.schema import assign_fresh_schema_ids

    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(columns))


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
    """The types of the top-level columns of ``schema``."""
    types = {each.name: text_of(each.field_type) for each in schema.fields}
    return Kinds(types, frozenset(each.name for each in schema.fields if each.required))


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
}

TOPIC: Final = "lakelog.topic"
"""The table property with the only topic of a table."""


def make(catalog: Catalog, name: str, shape: TableShape, location: str | None = None) -> Table:
    """Create the table ``name`` if it does not exist; tolerates a concurrent creation.

    :param location: location of a new table; ``None`` leaves it to the catalog
    """
    from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        pass
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    schema = wanted(shape.columns)
    topic = {} if shape.topic is None else {TOPIC: shape.topic}
    try:
        return catalog.create_table(
            name,
            schema,
            location=location,
            partition_spec=_partitions(schema, shape.partition),
            properties={**TABLE_PROPERTIES, **topic},
        )
    except TableAlreadyExistsError:
        return catalog.load_table(name)


def fitted(table: Table, name: str, shape: TableShape) -> Table:
    """Return ``table`` with all columns; raises ``TableMismatch`` if it cannot take the rows."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    ours, found = wanted(shape.columns), kinds(table.schema())
    known = schema_to_pyarrow(table.schema(), include_field_ids=False)

    def grows(column: str) -> bool:
        return fits(known.field(column).type, shape.columns.field(column).type, widens=True)

    lacks = missing(name, found, kinds(ours), grows)
    check_partition(name, partition_of(table.schema(), table.spec()), shape.partition)
    check_topic(name, table.properties.get(TOPIC), shape.topic)
    if lacks or any(found.types[name] != kind for name, kind in kinds(ours).types.items()):
        with table.update_schema() as update:
            update.union_by_name(ours)
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
    for number, key in enumerate(keys, _FIRST_PARTITION_ID):
        column, transform = TRANSFORMS[key]
        name = column if transform == "identity" else f"{column}_{transform}"
        source = schema.find_field(column).field_id
        fields.append(PartitionField(source, number, parse_transform(transform), name))
    return PartitionSpec(*fields)


def data_file(table: Table, facts: data_files.FileFacts, uri: str) -> DataFile:
    """The manifest entry of a file."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    schema = table.schema()

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
        spec_id=table.metadata.default_spec_id,
    )


def _bounds(schema: Schema, values: Any) -> dict[str, bytes]:
    """Bounds in Iceberg's single-value binary serialization."""
    from pyiceberg.conversions import to_bytes

    return {
        name: to_bytes(schema.find_field(name).field_type, value)  # type: ignore[arg-type]  # plain columns
        for name, value in values.items()
    }
