"""Converts bodies to columns with Arrow's JSON reader: all bodies of a call, or none.

The bodies are joined with newlines and read as one block. The result is valid only if each body is
exactly one object. This follows from two checks: each body begins with ``{`` and ends with ``}``,
and the reader returns as many objects as there are bodies. An incomplete body then makes the next
one a syntax error. A newline inside of a string is a syntax error, too; other newlines inside of a
body are valid. The check for braces also excludes a top-level ``null``, at which Arrow 26 crashes.

Arrow's reader accepts ``NaN`` and ``Inf``, which JSON does not have: :func:`has_no_number` finds
bodies that must be checked first.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from lakelog_lake.bodies import times
from lakelog_lake.bodies.json_schema import FieldShape, read_type, table_type

_SPACE: Final = b" \t\r\n"
_NO_NUMBER: Final = re.compile(rb"(?:NaN|Inf(?:inity)?)\s*[,\]}]")
_PARSE: Final = re.compile(r"JSON parse error: (.*) in row (\d+)")


class Unread(Exception):
    """At least one of the bodies is invalid.

    :ivar row: its index, if known; too high if an earlier body has several objects
    """

    def __init__(self, what: str = "", row: int | None = None) -> None:
        super().__init__(what)
        self.row = row


def not_objects(bodies: pa.Array) -> dict[int, str]:
    """Errors of rows that cannot be objects by their first or last byte."""
    offsets = np.frombuffer(
        bodies.buffers()[1], np.int64 if pa.types.is_large_binary(bodies.type) else np.int32
    )[bodies.offset : bodies.offset + len(bodies) + 1]
    data = np.frombuffer(bodies.buffers()[2] or b"", np.uint8)
    filled = np.flatnonzero(np.diff(offsets) > 0)
    good = np.zeros(len(bodies), dtype=np.bool_)
    good[filled] = (data[offsets[filled]] == ord("{")) & (data[offsets[filled + 1] - 1] == ord("}"))
    odd = ((int(row), bodies[int(row)].as_py()) for row in np.flatnonzero(~good))
    return {row: _what_instead(body.strip(_SPACE)) for row, body in odd if not _braced(body)}


def _braced(body: bytes) -> bool:
    inner = body.strip(_SPACE)
    return inner[:1] == b"{" and inner[-1:] == b"}"


def _what_instead(inner: bytes) -> str:
    if not inner:
        return "byte 0: an empty body is not JSON"
    start = inner[:12].decode(errors="replace")
    if inner[:1] != b"{":
        return f"byte 0: a JSON object should begin here, not {start!r}"
    return f"a JSON object should end with }}, not {chr(inner[-1])!r}"


def has_no_number(body: bytes) -> bool:
    """Whether ``NaN`` or ``Inf`` may occur in place of a JSON value."""
    return (b"NaN" in body or b"Inf" in body) and _NO_NUMBER.search(body) is not None


def read(bodies: pa.Array, shape: FieldShape, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``bodies``; raises :class:`Unread`.

    :param bodies: UTF-8 texts that begin with ``{``, end with ``}``, and have no ``NaN`` as a value
    :param schema: the columns of the result
    """
    block = joined(bodies)
    try:
        table = arrow_json.read_json(
            pa.BufferReader(block),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=block.size + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema([(f.key, read_type(f)) for f in shape.fields]),
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != len(bodies):
            raise Unread("more than one JSON value")
        return pa.RecordBatch.from_arrays(
            [_field(_whole(table.column(at)), f) for at, f in enumerate(shape.fields)],
            schema=schema,
        )
    except pa.ArrowException as error:
        found = _PARSE.fullmatch(str(error))
        raise (Unread(found[1], int(found[2])) if found else Unread(str(error))) from error


def joined(bodies: pa.Array) -> Any:
    """Join the bodies with newlines."""
    offsets = pa.array([0, len(bodies)], pa.int32())
    lines = pa.ListArray.from_arrays(offsets, bodies.cast(pa.binary()))
    return pc.binary_join(lines, b"\n")[0].as_buffer()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _field(read: pa.Array, shape: FieldShape, parent: pa.Array | None = None) -> pa.Array:
    """Convert the column of a field to its type in the table."""
    if shape.required and read.null_count:
        missing = read.is_null() if parent is None else pc.and_(read.is_null(), parent.is_valid())
        if pc.any(missing).as_py():
            raise Unread(f"{shape.key!r} is missing")
    return read if shape.as_read else _KINDS[shape.kind](read, shape)


def _struct(read: pa.Array, shape: FieldShape) -> pa.Array:
    inner = [_field(read.field(at), each, read) for at, each in enumerate(shape.fields)]
    kind = table_type(shape)
    return pa.StructArray.from_arrays(inner, fields=list(kind), mask=read.is_null())


def _array(read: pa.Array, shape: FieldShape) -> pa.Array:
    elements = _field(read.values, shape.fields[0])
    return pa.ListArray.from_arrays(
        read.offsets, elements, type=table_type(shape), mask=read.is_null()
    )


_KINDS: Final[dict[str, Any]] = {
    "struct": _struct,
    "array": _array,
    "timestamp": lambda read, _: times.timestamps(read),
    "date": lambda read, _: times.dates(read),
}
