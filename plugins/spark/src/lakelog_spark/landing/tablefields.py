"""How the columns stand in a data file: which of them, in which order, with which field ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog_spark.columns import NAMES

if TYPE_CHECKING:
    import pyarrow as pa

DAY: Final = "day"
"""The column by which tables without hidden partitions are partitioned, beside ``topic``."""
REPEATING: Final = (
    *("store", "topic", "queue_id", "flag", "sys_flag", "tags", "transaction_type"),
    *("born_host", "store_host", "reconsume_times", "properties.key_value.key", DAY),
)
"""The columns worth a dictionary; never the body."""


@attrs.frozen
class Layout:
    """What stands in a data file.

    :ivar names: the columns, in their order
    :ivar field_ids: of each column by its name in the table, nested ones as ``keys.element``,
        ``properties.key``, ``properties.value``; none without it
    """

    names: tuple[str, ...] = NAMES
    field_ids: Mapping[str, int] | None = None


def file_schema(layout: Layout) -> pa.Schema:
    """The schema of a data file."""
    import pyarrow as pa

    from lakelog.arrow import schema

    ids = layout.field_ids
    types: dict[str, Any] = {
        "store": pa.string(),
        DAY: pa.date32(),
        **{f.name: f.type for f in schema()},
    }

    def field(name: str, kind: Any, at: str, *, null: bool = True) -> Any:
        number = None if ids is None else {b"PARQUET:field_id": str(ids[at]).encode()}
        return pa.field(name, kind, null, number)

    def nested(name: str, kind: Any) -> Any:
        if pa.types.is_map(kind):
            key = field("key", kind.key_type, f"{name}.key", null=False)
            return pa.map_(key, field("value", kind.item_type, f"{name}.value"))
        if pa.types.is_list(kind):
            return pa.list_(field("element", kind.value_type, f"{name}.element"))
        return kind

    return pa.schema([field(name, nested(name, types[name]), name) for name in layout.names])
