"""JSON bodies as typed columns.

Each body is one object. Fields that the schema does not name are ignored; a missing field is null.
Types are strict: ``"1"`` and ``1.0`` are not integers, and a number beyond 64 bits or a repeated
key of the schema makes a body invalid. The schema file is a JSON Schema or, if it does not begin
with ``{``, a Spark DDL (:mod:`.json_schema`).

Bodies are read in steps by Arrow's reader, each step joined with newlines and read as one block.
The result is valid only if each body is exactly one object. This follows from two checks: each body
begins with ``{`` and ends with ``}``, and the reader returns as many objects as there are bodies.
An incomplete body then makes the next one a syntax error. A newline inside of a string is a syntax
error, too; other newlines inside of a body are valid. The check for braces also excludes a
top-level ``null``, at which Arrow 26 crashes. The reader accepts ``NaN`` and ``Inf``, which JSON
does not have: :func:`has_no_number` finds bodies that must be checked first.

If the reader rejects a step, the step is split around the invalid body, or in quarters if the
reader does not identify that body. Once a few bodies are left, a slow, exact check of single bodies
finds the cause. So an invalid body costs the others little, and no result depends on neighbouring
bodies. The reader also rejects every body that this check rejects. For a fault that only the reader
finds, the reader's text is used.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from lakelog_lake.bodies import json_schema
from lakelog_lake.bodies.base import Parsed, not_utf8, parsed, refused, without
from lakelog_lake.bodies.json_schema import FieldShape, arrow_type

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
    return {row: why for row, body in odd if (why := _what_instead(body.strip(_SPACE)))}


def _what_instead(inner: bytes) -> str | None:
    if not inner:
        return "byte 0: an empty body is not JSON"
    start = inner[:12].decode(errors="replace")
    if inner[:1] != b"{":
        return f"byte 0: a JSON object should begin here, not {start!r}"
    if inner[-1:] != b"}":
        return f"a JSON object should end with }}, not {chr(inner[-1])!r}"
    return None


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
                explicit_schema=pa.schema(
                    [(f.key, arrow_type(f, in_table=False)) for f in shape.fields]
                ),
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != len(bodies):
            raise Unread("more than one JSON value")
        if any(_has_infinite(each) for column in table.columns for each in column.chunks):
            raise Unread("a number does not fit its column")
        return pa.RecordBatch.from_arrays(
            [_field(_whole(table.column(at)), f) for at, f in enumerate(shape.fields)],
            schema=schema,
        )
    except pa.ArrowException as error:
        found = _PARSE.fullmatch(str(error))
        raise (Unread(found[1], int(found[2])) if found else Unread(str(error))) from error


def _has_infinite(column: pa.Array) -> bool:
    """Whether a number was too large for its type; JSON has no infinite ones."""
    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.any(pc.is_inf(column)).as_py())
    if pa.types.is_struct(kind):
        return any(_has_infinite(each) for each in column.flatten())
    return pa.types.is_list(kind) and _has_infinite(column.flatten())


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
    if shape.as_read:
        return read
    if shape.kind in json_schema.FROM_TEXT:
        return json_schema.FROM_TEXT[shape.kind](read)
    return (_struct if shape.kind == "struct" else _array)(read, shape)


def _struct(read: pa.Array, shape: FieldShape) -> pa.Array:
    inner = [_field(read.field(at), each, read) for at, each in enumerate(shape.fields)]
    kind = arrow_type(shape)
    return pa.StructArray.from_arrays(inner, fields=list(kind), mask=read.is_null())


def _array(read: pa.Array, shape: FieldShape) -> pa.Array:
    elements = _field(read.values, shape.fields[0])
    return pa.ListArray.from_arrays(
        read.offsets, elements, type=arrow_type(shape), mask=read.is_null()
    )


_BITS: Final = {"int": 32, "bigint": 64}
_FLOATS: Final[dict[str, type[np.floating[Any]]]] = {"float": np.float32, "double": np.float64}
_CALLED: Final = {
    **dict.fromkeys(_BITS, "an integer"),
    **dict.fromkeys(("float", "double"), "a number"),
    "struct": "an object",
    "array": "an array",
    "boolean": "a boolean",
    "string": "a string",
    "timestamp": "a string with a time (ISO 8601)",
    "date": "a string with a date (YYYY-MM-DD)",
}
_PYTHON: Final[dict[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(_BITS, int),
    **dict.fromkeys(("float", "double"), (int, float)),
    "struct": dict,
    "array": list,
    "boolean": bool,
    **dict.fromkeys(("string", "timestamp", "date"), str),
}
_SHOWN: Final = 40
_ESCAPED: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def fault(body: bytes, shape: FieldShape) -> str | None:
    """The fault of ``body`` and its place; ``None`` without a fault.

    :param body: UTF-8 that begins with ``{`` and ends with ``}``
    """
    text = body.decode()
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        return f"byte {len(text[: error.pos].encode())}: {error.msg}"
    except _Constant as error:
        return f"{error} is not JSON"
    except (RecursionError, ValueError):  # too deep, or too many digits, for Python
        return "it may contain NaN or Inf" if has_no_number(body) else None
    found = _fault(value, shape, "")
    return found or (_surrogate(_kept(value, shape)) if _ESCAPED.search(body) else None)


def _surrogate(value: Any) -> str | None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair is not text"
    except RecursionError:
        pass
    return None


class _Constant(Exception):
    """``NaN`` or ``Infinity``, which Python accepts and JSON does not have."""


def _no_constant(name: str) -> Any:
    raise _Constant(name)


class _Twice(dict[str, Any]):
    """An object with repeated keys."""

    keys_twice: frozenset[str]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    counted = Counter(key for key, _ in pairs)
    twice = _Twice(made)
    twice.keys_twice = frozenset(key for key, count in counted.items() if count > 1)
    return twice


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_object)


def _fault(value: Any, shape: FieldShape, at: str) -> str | None:
    if value is None:
        return f"{at} is required, and is null or missing" if shape.required else None
    is_kind = isinstance(value, _PYTHON[shape.kind])
    if not is_kind or isinstance(value, bool) != (shape.kind == "boolean"):
        return f"{at or '/'}: {_shown(value)} is not {_CALLED[shape.kind]}"
    if isinstance(value, _Twice):
        again = next((f.key for f in shape.fields if f.key in value.keys_twice), None)
        if again is not None:
            return f"{at}/{_step(again)} occurs more than once"
    if shape.kind == "struct":
        found = (_fault(value.get(f.key), f, f"{at}/{_step(f.key)}") for f in shape.fields)
    elif shape.kind == "array":
        found = (_fault(each, shape.fields[0], f"{at}/{n}") for n, each in enumerate(value))
    else:
        return _bound(value, shape.kind, at)
    return next((each for each in found if each), None)


def _bound(value: Any, kind: str, at: str) -> str | None:
    bits = _BITS.get(kind)
    if bits is not None and not -(1 << bits - 1) <= value < 1 << bits - 1:
        return f"{at}: {_shown(value)} does not fit {bits} bits"
    if kind in _FLOATS and not _is_finite(value, _FLOATS[kind]):
        return f"{at}: {_shown(value)} does not fit a {kind}"
    if kind in json_schema.FROM_TEXT and not json_schema.is_time(value, kind):
        return f"{at}: {_shown(value)} is not {_CALLED[kind]}"
    return None


def _is_finite(value: float, kind: type[np.floating[Any]]) -> bool:
    try:
        with np.errstate(over="ignore"):
            return bool(np.isfinite(kind(value)))
    except OverflowError:  # an integer beyond the range of a double
        return False


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _step(key: str) -> str:
    """Escape ``key`` for a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


_STEP_ROWS: Final = 1024
_STEP_BYTES: Final = 4 << 20
_FEW: Final = 16
"""Number of bodies that are checked one by one after the fast reader rejects them."""


@attrs.frozen(slots=False)
class Json:
    """A parser of JSON bodies.

    :ivar shape: the expected fields of a body
    """

    shape: FieldShape

    @classmethod
    def of(cls, text: str, source: str) -> Json:
        """Parse the schema ``text``; raises :class:`~lakelog.errors.SettingsError`."""
        try:
            if text.lstrip().startswith("{"):
                return cls(json_schema.shape_of(json.loads(text)))
            return cls(json_schema.ddl_shape(text))
        except (ValueError, RecursionError) as error:
            raise refused(f"not a supported schema: {error}", source) from error

    @cached_property
    def fields(self) -> pa.Schema:
        """A column for each field of the body."""
        return pa.schema([(each.name, arrow_type(each)) for each in self.shape.fields])

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """Parse bodies that conform to the schema."""
        faults = not_utf8(bodies)
        texts, kept = without(bodies, faults)
        for row, why in not_objects(texts).items():
            faults[int(kept[row])] = why
        texts, kept = without(bodies, faults)
        parts = []
        for first, behind in _steps(texts):
            some, rows_of = texts[first:behind], kept[first:behind]
            is_odd = has_no_number(joined(some).to_pybytes())
            parts += (self._one_by_one if is_odd else self._read)(some, rows_of, faults)
        return parsed(self.fields, parts, faults, len(bodies))

    def _read(
        self,
        bodies: pa.Array,
        rows: np.ndarray,
        faults: dict[int, str],
        *,
        is_checked: bool = False,
    ) -> list[pa.RecordBatch]:
        """Parse the bodies around invalid ones; each part is decided independently.

        :param rows: their indices; errors are added to ``faults`` by index
        :param is_checked: whether each body was checked, so that only Arrow finds a fault
        """
        if not len(bodies):
            return []
        try:
            return [read(bodies, self.shape, self.fields)]
        except Unread as error:
            if is_checked and len(bodies) == 1:
                known = _of_schema(bodies[0].as_py(), self.shape)
                if known is not None and known != bodies[0].as_py():
                    only = pa.array([known], bodies.type)
                    return self._read(only, rows, faults, is_checked=True)
                faults[int(rows[0])] = str(error)
                return []
            bad = error.row
        if len(bodies) <= _FEW and not is_checked:
            return self._one_by_one(bodies, rows, faults)
        cuts = (len(bodies) // 2,) if is_checked else _around(bad, len(bodies))
        return [
            part
            for a, b in pairwise((0, *cuts, len(bodies)))
            for part in self._read(bodies[a:b], rows[a:b], faults, is_checked=is_checked)
        ]

    def _one_by_one(
        self, bodies: pa.Array, rows: np.ndarray, faults: dict[int, str]
    ) -> list[pa.RecordBatch]:
        found = ((row, fault(body.as_py(), self.shape)) for row, body in enumerate(bodies))
        bad = {row: why for row, why in found if why is not None}
        faults.update({int(rows[row]): why for row, why in bad.items()})
        left, kept = without(bodies, bad)
        return self._read(left, rows[kept], faults, is_checked=True)


def _of_schema(body: bytes, shape: FieldShape) -> bytes | None:
    """The body without other fields than those of the schema, which Arrow reads, too."""
    try:
        value = _kept(_DECODER.decode(body.decode()), shape)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except (RecursionError, ValueError):
        return None


def _kept(value: Any, shape: FieldShape) -> Any:
    if shape.kind == "struct" and isinstance(value, dict):
        return {f.key: _kept(value[f.key], f) for f in shape.fields if f.key in value}
    if shape.kind == "array" and isinstance(value, list):
        return [_kept(each, shape.fields[0]) for each in value]
    return value


def _around(bad: int | None, count: int) -> tuple[int, ...]:
    """Where to split ``count`` bodies, to separate the body that may be invalid."""
    if bad is None or bad >= count:
        return (count // 4, count // 2, count - count // 4)
    return (bad, min(bad + _FEW, count))


def _steps(bodies: pa.Array) -> Iterator[tuple[int, int]]:
    """Split bodies into runs of bounded count and size."""
    ends = np.cumsum(pc.binary_length(bodies).to_numpy(zero_copy_only=False), dtype=np.int64)
    first = 0
    while first < len(bodies):
        before = int(ends[first - 1]) if first else 0
        behind = int(np.searchsorted(ends, before + _STEP_BYTES, side="right"))
        behind = max(first + 1, min(behind, first + _STEP_ROWS))
        yield first, behind
        first = behind
