"""What a JSON body should look like: a tree of fields, as a schema file says it.

Each field has two Arrow types: the one that Arrow's JSON reader reads, under the keys of the body,
and the one of the table, under column names. Times are read as text and made times afterwards.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import pyarrow as pa

PLAIN: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
"""The kinds that have no fields, as Spark calls them."""
AS_TEXT: Final = ("timestamp", "date")


@attrs.frozen
class Shape:
    """A field of a body.

    :ivar key: its key in the body; empty for the elements of an array and for the body
    :ivar name: its name in the table
    :ivar kind: one of :data:`PLAIN`, ``struct`` or ``array``
    :ivar required: whether it must be there, and not be null
    :ivar fields: those of a struct; the one that the elements of an array are
    """

    key: str
    name: str
    kind: str
    required: bool = False
    fields: tuple[Shape, ...] = ()

    @property
    def as_read(self) -> bool:
        """Whether what Arrow's reader gives can stand in the table."""
        if self.kind in AS_TEXT:
            return False
        return all(each.as_read and not each.required and _same(each) for each in self.fields)


def _same(shape: Shape) -> bool:
    return shape.key in ("", shape.name)


def read_type(shape: Shape) -> pa.DataType:
    """What Arrow's reader is asked for."""
    return pa.string() if shape.kind in AS_TEXT else _type(shape, read_type, "key")


def table_type(shape: Shape) -> pa.DataType:
    """What stands in the table."""
    return _type(shape, table_type, "name")


def _type(shape: Shape, inner: Any, called: str) -> pa.DataType:
    if shape.kind == "struct":
        return pa.struct([(getattr(each, called), inner(each)) for each in shape.fields])
    if shape.kind == "array":
        return pa.list_(pa.field("element", inner(shape.fields[0])))
    return PLAIN[shape.kind]
