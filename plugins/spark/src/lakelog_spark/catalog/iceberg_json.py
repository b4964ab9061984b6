"""Partitions and data files in the JSON that Iceberg's Java classes parse."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from lakelog_lake.sinks.iceberg_types import in_table
from lakelog_lake.tables.file_facts import FileFacts
from lakelog_lake.tables.partitions import DAY, HOUR, STORE, TOPIC

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

TRANSFORMS: Final = {
    TOPIC: ("topic", "identity"),
    STORE: ("store", "identity"),
    DAY: ("store_timestamp", "day"),
    HOUR: ("store_timestamp", "hour"),
}
"""The column and transform of each partition key."""
_KEYS: Final = {part: key for key, part in TRANSFORMS.items()}


def schema_of(text: str) -> Schema:
    """Parse a schema in the format of Java's ``SchemaParser``."""
    from pyiceberg.schema import Schema

    return Schema.model_validate_json(text)


def partition_of(schema: Schema, spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The partition keys; ``bucket[8](queue_id)`` and the like for other transforms."""
    parts = (
        (str(schema.find_column_name(e["source-id"])), str(e["transform"])) for e in spec["fields"]
    )
    return tuple(_KEYS.get(part, f"{part[1]}({part[0]})") for part in parts)


def data_file(
    facts: FileFacts, uri: str, spec_id: int, schema: Schema, values: Sequence[int | str]
) -> str:
    """The manifest entry of a file, for Java's ``ContentFileParser``.

    :param uri: URI of the file
    :param values: the values of its partition, as in Iceberg's JSON
    """

    def by_id(values: Mapping[str, Any]) -> dict[str, list[Any]]:
        keys = [schema.find_field(in_table(name)).field_id for name in values]
        return {"keys": keys, "values": list(values.values())}

    return json.dumps(
        {
            "spec-id": spec_id,
            "content": "data",
            "file-path": uri,
            "file-format": "parquet",
            "partition": list(values),
            "file-size-in-bytes": facts.size_bytes,
            "record-count": facts.rows,
            "column-sizes": by_id(facts.column_sizes),
            "value-counts": by_id(facts.value_counts),
            "null-value-counts": by_id(facts.null_counts),
            "lower-bounds": by_id(_bounds(schema, facts.lower)),
            "upper-bounds": by_id(_bounds(schema, facts.upper)),
            "split-offsets": sorted(facts.row_groups),
        }
    )


def _bounds(schema: Schema, values: Mapping[str, int | str]) -> dict[str, str]:
    """Bounds in Iceberg's single-value binary serialization, in hexadecimal."""
    from pyiceberg.conversions import to_bytes

    return {
        name: to_bytes(schema.find_field(name).field_type, value).hex().upper()  # type: ignore[arg-type]  # plain columns
        for name, value in values.items()
    }
