"""Types of columns as texts without ids, such as ``list<string>``, and Iceberg's field ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from lakelog_lake.sinks.checks import Kinds

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema

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
        inside = [
            ("key", kind.key_id, kind.key_type),
            ("value", kind.value_id, kind.value_type),
        ]
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
