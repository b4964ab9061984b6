"""Iceberg's view of a table: schema, partition spec, and data files with their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lakelog_lake.sinks.checks import check_partition, check_topic, missing
from lakelog_lake.sinks.iceberg_types import in_table, kinds, wanted
from lakelog_lake.tables.fields import TableShape, fits
from lakelog_lake.tables.file_facts import FileFacts
from lakelog_lake.tables.history_setting import DEFAULT_HISTORY, HISTORY

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
    HISTORY: DEFAULT_HISTORY,
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
    check_partition(name, partition_of(table), shape.partition)
    check_topic(name, table.properties.get(TOPIC), shape.topic)
    if lacks or any(found.types[name] != kind for name, kind in kinds(ours).types.items()):
        with table.update_schema() as update:
            update.union_by_name(ours)
        table.refresh()
    return table


def partition_of(table: Table) -> tuple[str, ...]:
    """The partition keys; ``bucket[8](queue_id)`` and the like for other transforms."""
    schema = table.schema()
    parts = (
        (schema.find_column_name(each.source_id) or "", str(each.transform))
        for each in table.spec().fields
    )
    return tuple(_KEYS.get(part, f"{part[1]}({part[0]})") for part in parts)


_SOURCES: Final = {
    "topic": ("topic", "identity"),
    "store": ("store", "identity"),
    "day": ("store_timestamp", "day"),
    "hour": ("store_timestamp", "hour"),
}
_KEYS: Final = {part: key for key, part in _SOURCES.items()}
_FIRST_PARTITION_ID: Final = 1000


def _partitions(schema: Schema, keys: Sequence[str]) -> PartitionSpec:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import parse_transform

    fields = []
    for number, key in enumerate(keys, _FIRST_PARTITION_ID):
        column, transform = _SOURCES[key]
        name = column if transform == "identity" else f"{column}_{transform}"
        source = schema.find_field(column).field_id
        fields.append(PartitionField(source, number, parse_transform(transform), name))
    return PartitionSpec(*fields)


def data_file(table: Table, facts: FileFacts, uri: str) -> DataFile:
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
