"""The table as Iceberg sees it: its schema, its partitions, and data files with their bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lakelog_spark.columns import NAMES, TYPES
from lakelog_spark.landing.facts import FileFacts

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

TABLE_PROPERTIES: Final = {
    "format-version": "2",
    "write.format.default": "parquet",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
    "write.metadata.metrics.column.body": "none",
    "write.metadata.metrics.column.properties": "none",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_IN_FILES: Final = {
    "keys.list.element": "keys.element",
    "properties.key_value.key": "properties.key",
    "properties.key_value.value": "properties.value",
}
"""The names of nested columns in Parquet, and in Iceberg."""


def make(catalog: Catalog, name: str) -> Table:
    """The table ``name``, made if it is not there; somebody else may make it at the same time."""
    from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        pass
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    schema = _schema()
    try:
        return catalog.create_table(
            name, schema, partition_spec=_partitions(schema), properties=TABLE_PROPERTIES
        )
    except TableAlreadyExistsError:
        return catalog.load_table(name)


def is_ours(table: Table) -> bool:
    """Whether messages can land in ``table``: its columns and partitions are as they should be."""
    from pyiceberg.transforms import DayTransform, IdentityTransform

    schema = table.schema()
    theirs = {field.name: str(field.field_type) for field in schema.fields}
    ours = {field.name: str(field.field_type) for field in _schema().fields}
    if any(_plain(theirs.get(name, "")) != _plain(kind) for name, kind in ours.items()):
        return False
    parts = [
        (schema.find_column_name(each.source_id), each.transform) for each in table.spec().fields
    ]
    return parts == [("topic", IdentityTransform()), ("store_timestamp", DayTransform())]


def _plain(kind: str) -> str:
    """A type without the ids and names of what is nested in it."""
    return kind.partition("<")[0]


def field_ids(table: Table) -> dict[str, int]:
    """The id of each column, those inside of others too."""
    schema = table.schema()
    names = [*NAMES, *_IN_FILES.values()]
    return {name: schema.find_field(name).field_id for name in names}


def _schema() -> Schema:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    following = iter(range(len(NAMES) + 1, 1000))
    fields = [
        NestedField(at, name, _type(kind, following), required=False)
        for at, (name, kind) in enumerate(TYPES.items(), 1)
    ]
    return Schema(*fields)


def _type(kind: str, ids: Any) -> Any:
    from pyiceberg import types

    if kind == "array<string>":
        return types.ListType(next(ids), types.StringType(), element_required=False)
    if kind == "map<string,string>":
        text = types.StringType()
        return types.MapType(next(ids), text, next(ids), text, value_required=False)
    plain = {
        "string": types.StringType,
        "int": types.IntegerType,
        "bigint": types.LongType,
        "binary": types.BinaryType,
        "timestamp": types.TimestamptzType,
    }
    return plain[kind]()


def _partitions(schema: Schema) -> PartitionSpec:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform, IdentityTransform

    topic = schema.find_field("topic").field_id
    time = schema.find_field("store_timestamp").field_id
    return PartitionSpec(
        PartitionField(topic, 1000, IdentityTransform(), "topic"),
        PartitionField(time, 1001, DayTransform(), "store_timestamp_day"),
    )


def data_file(table: Table, facts: FileFacts, uri: str) -> DataFile:
    """What a manifest says of a file."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    schema = table.schema()

    def by_id(values: Any) -> dict[int, Any]:
        names = ((_IN_FILES.get(name, name), value) for name, value in values.items())
        return {schema.find_field(name).field_id: value for name, value in names}

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=Record(facts.topic, facts.day),
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
    """Bounds in Iceberg's binary form of single values."""
    from pyiceberg.conversions import to_bytes

    return {
        name: to_bytes(schema.find_field(name).field_type, value)  # type: ignore[arg-type]  # plain columns
        for name, value in values.items()
    }
