"""The shape of JSON bodies, from a JSON Schema, a Spark DDL or existing bodies; types of columns.

Of JSON Schema the parts are supported that give types and required fields: ``type`` (optionally
with ``null``), ``properties``, ``required``, ``items``, the formats ``date-time`` and ``date``,
local ``$ref``, and ``anyOf`` or ``oneOf`` of one type and ``null``. Constraints on values
(``enum``, ``minimum``, ``pattern`` and the like) are not checked. A field may be missing or null
unless it is ``required`` and its type excludes ``null``.

A DDL is ``id bigint not null, user struct<name: string>, tags array<string>``: the part of Spark's
``StructType.fromDDL`` for types that JSON can be converted to. A body without a ``not null`` field
is invalid. ``tinyint`` and ``smallint`` become ``int``, as Iceberg has neither.

Times are RFC 3339 and similar ISO 8601 forms, to the microsecond. Digits behind it are cut off, as
Java and Go write nanoseconds. A time without a zone is in UTC, as everywhere in this package. Leap
seconds are invalid.

A schema inferred from existing bodies is reviewed by a user, who passes its file to ``json:``. No
schema is inferred while messages land: two runs with different messages could get different
schemas. Fields without a single type (always null, numbers and strings, objects without fields) are
left out and listed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date, datetime
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

import lakelog
from lakelog.errors import SettingsError
from lakelog_lake.bodies.base import column_names, day, micros

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
"""The scalar kinds, by Spark's names."""


@attrs.frozen
class FieldShape:
    """A field of a body.

    :ivar key: its key in the body; empty for array elements and for the body itself
    :ivar name: its name in the table
    :ivar kind: one of :data:`PLAIN`, ``struct`` or ``array``
    :ivar required: whether a missing or null field is an error
    :ivar fields: for a struct its fields; for an array one field, of its elements
    """

    key: str
    name: str
    kind: str
    required: bool = False
    fields: tuple[FieldShape, ...] = ()

    @property
    def as_read(self) -> bool:
        """Whether the type from Arrow's reader equals that in the table."""
        return self.kind not in FROM_TEXT and all(
            each.as_read and not each.required and each.key in ("", each.name)
            for each in self.fields
        )


def arrow_type(shape: FieldShape, *, in_table: bool = True) -> pa.DataType:
    """The type in the table, or the type to request from Arrow's reader."""
    if shape.kind == "struct":
        inner = [arrow_type(each, in_table=in_table) for each in shape.fields]
        names = [each.name if in_table else each.key for each in shape.fields]
        return pa.struct(list(zip(names, inner, strict=True)))
    if shape.kind == "array":
        element = arrow_type(shape.fields[0], in_table=in_table)
        return pa.list_(pa.field("element", element))
    return PLAIN[shape.kind if in_table or shape.kind not in FROM_TEXT else "string"]


_PLAIN: Final = {"integer": "bigint", "number": "double", "boolean": "boolean"}
_FORMATS: Final = {"date-time": "timestamp", "date": "date"}


def shape_of(schema: Any) -> FieldShape:
    """The shape of the body; raises :class:`ValueError` with the place in the schema."""
    body = attrs.evolve(_Reading(schema).shape(schema, "", ()), required=False)
    if body.kind != "struct":
        raise ValueError(f"a body must be an object, not {body.kind}")
    return body


class _Reading:
    def __init__(self, root: Any) -> None:
        self._root = root

    def shape(self, schema: Any, at: str, inside: tuple[str, ...]) -> FieldShape:
        """The nameless field that ``schema`` describes; required if it excludes null.

        :param inside: the enclosing references
        """
        schema, inside, nullable = self._resolved(schema, at, inside)
        kind = _kind(schema, at)
        fields: tuple[FieldShape, ...] = ()
        if kind == "object":
            kind, fields = "struct", self._fields(schema, at, inside)
        elif kind == "array":
            if "items" not in schema:
                raise ValueError(f"{at or '/'}: an array needs items")
            element = self.shape(schema["items"], f"{at}/items", inside)
            fields = (attrs.evolve(element, name="element", required=False),)
        elif kind == "string":
            kind = _FORMATS.get(str(schema.get("format")), kind)
        return FieldShape("", "", _PLAIN.get(kind, kind), not nullable, fields)

    def _fields(self, schema: Any, at: str, inside: tuple[str, ...]) -> tuple[FieldShape, ...]:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            raise ValueError(
                f"{at or '/'}: an object needs properties; maps of any keys are not supported"
            )
        names = column_names(properties, are_columns=not at)
        required = schema.get("required", [])
        if not isinstance(required, list):
            raise ValueError(f"{at or '/'}: required should be an array")
        made = [
            self.shape(each, f"{at}/properties/{key}", inside) for key, each in properties.items()
        ]
        return tuple(
            attrs.evolve(each, key=key, name=name, required=each.required and key in required)
            for key, name, each in zip(properties, names, made, strict=True)
        )

    def _resolved(self, schema: Any, at: str, inside: tuple[str, ...]) -> tuple[Any, Any, bool]:
        """Resolve references and a choice between a type and null; and whether null is allowed."""
        nullable = False
        while True:
            if not isinstance(schema, dict):
                raise ValueError(f"{at or '/'}: this is not a schema with a type")
            kinds, choices = schema.get("type"), schema.get("anyOf", schema.get("oneOf"))
            nullable |= isinstance(kinds, list) and "null" in kinds
            if "$ref" in schema:
                if schema["$ref"] in inside:
                    raise ValueError(f"{at}: {schema['$ref']} contains itself: no column can")
                inside = (*inside, schema["$ref"])
                schema = self._target(schema["$ref"], at)
                continue
            if choices is None:
                return schema, inside, nullable
            if not isinstance(choices, list):
                raise ValueError(f"{at or '/'}: anyOf and oneOf should be arrays")
            left = [x for x in choices if not isinstance(x, dict) or x.get("type") != "null"]
            if len(left) != 1:
                raise ValueError(f"{at or '/'}: a choice of types is only supported with null")
            nullable |= len(left) < len(choices)
            schema = left[0]

    def _target(self, reference: str, at: str) -> Any:
        if not isinstance(reference, str):
            raise ValueError(f"{at or '/'}: $ref should be a string")
        path, schema = reference.split("/"), self._root
        if path[0] != "#":
            raise ValueError(f"{at or '/'}: {reference} is not in this file")
        for part in path[1:]:
            step = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(schema, dict) or step not in schema:
                raise ValueError(f"{at or '/'}: {reference} is not in this file")
            schema = schema[step]
        return schema


def _kind(schema: dict[str, Any], at: str) -> str:
    if "allOf" in schema:
        raise ValueError(f"{at or '/'}: allOf is not supported")
    kinds = schema.get("type", "object" if "properties" in schema else None)
    listed = kinds if isinstance(kinds, list) else [kinds]
    left = [each for each in listed if each != "null"]
    if len(left) != 1 or left[0] not in ("object", "array", "string", *_PLAIN):
        raise ValueError(f"{at or '/'}: {kinds!r} is not a single supported type")
    return str(left[0])


_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_TOO_FINE: Final = r"(\.\d{6})\d+"
_WITHOUT_ZONE: Final = r"^\d{4}-\d\d-\d\d([T ]\d\d(:\d\d){0,2}(\.\d+)?)?$"


def _in_calendar(times: pa.Array, unit: pa.DataType, check: Callable[[int], int]) -> pa.Array:
    """Return ``times``; raises :class:`pyarrow.ArrowInvalid` for one of no year of the calendar."""
    for bound in pc.min_max(times.cast(unit)).values():
        if bound.is_valid:
            try:
                check(bound.as_py())
            except ValueError as error:
                raise pa.ArrowInvalid(str(error)) from error
    return times


def timestamps(texts: pa.Array) -> pa.Array:
    """Timestamps in UTC; raises :class:`pyarrow.ArrowInvalid` for an invalid text."""
    return _in_calendar(_timestamps(texts), pa.int64(), micros)


def _timestamps(texts: pa.Array) -> pa.Array:
    try:
        return texts.cast(_TIMESTAMP)
    except pa.ArrowInvalid:
        pass
    upper = pc.ascii_upper(texts)
    fine = pc.replace_substring_regex(upper, pattern=_TOO_FINE, replacement=r"\1")
    bare = pc.match_substring_regex(fine, pattern=_WITHOUT_ZONE)
    with_zone = pc.if_else(bare, None, fine).cast(_TIMESTAMP)
    without = pc.if_else(bare, fine, None).cast(pa.timestamp("us")).cast(_TIMESTAMP)
    return pc.coalesce(with_zone, without)


FROM_TEXT: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    "timestamp": timestamps,
    "date": lambda texts: _in_calendar(texts.cast(pa.date32()), pa.int32(), day),
}
"""The kinds that JSON has as texts, and their conversions.

They raise :class:`pyarrow.ArrowInvalid` for an invalid text; a day is ``YYYY-MM-DD``.
"""
_PYTHON_TIMES: Final[dict[str, tuple[re.Pattern[str], Callable[[str], object]]]] = {
    "timestamp": (
        re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII),
        datetime.fromisoformat,
    ),
    "date": (re.compile(r"\d{4}-\d\d-\d\d", re.ASCII), date.fromisoformat),
}


def is_time(value: str, kind: str) -> bool:
    """Whether ``value`` can be converted to ``kind``, one of :data:`FROM_TEXT`."""
    pattern, make = _PYTHON_TIMES[kind]
    with suppress(ValueError):  # a quick check for usual times, ten times as fast as Arrow's parser
        if pattern.fullmatch(value) is not None and make(value) is not None:
            return True
    try:
        FROM_TEXT[kind](pa.array([value], pa.string()))
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return False
    return True


_TOKEN: Final = re.compile(r"\s*(?:--[^\n]*\n\s*)*(`(?:[^`]|``)+`|\w+|[<>,:()])")
_ALIASES: Final = {
    **dict.fromkeys(("tinyint", "byte", "smallint", "short", "integer"), "int"),
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}


def ddl_shape(text: str) -> FieldShape:
    """The shape of the body; raises :class:`ValueError`."""
    return FieldShape("", "", "struct", fields=_DdlReading(_tokens(text)).fields(end=""))


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    text = text.rstrip().rstrip(";")
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"character {at}: {text[at : at + 20]!r} is no part of a schema")
        found.append(match[1])
        at = match.end()
    return found


class _DdlReading:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._at = 0

    def fields(self, end: str) -> tuple[FieldShape, ...]:
        """Parse ``name type [not null] [comment]``, comma-separated, up to ``end``."""
        found = [self._field()]
        while self._peek() == ",":
            self._next()
            found.append(self._field())
        self._must(end)
        names = column_names((each.key for each in found), are_columns=not end)
        return tuple(attrs.evolve(each, name=name) for each, name in zip(found, names, strict=True))

    def _field(self) -> FieldShape:
        key = self._next()
        if not re.match(r"[`\w]", key):
            raise ValueError(f"{key or 'the end'!r} where the name of a field should be")
        if key.startswith("`"):
            key = key[1:-1].replace("``", "`")
        if self._peek() == ":":
            self._next()
        made = self._type(key)
        if self._peek().lower() == "not":
            self._next()
            self._must("null")
            made = attrs.evolve(made, required=True)
        return made

    def _type(self, key: str) -> FieldShape:
        kind = self._next().lower()
        if kind == "struct":
            self._must("<")
            return FieldShape(key, key, "struct", fields=self.fields(end=">"))
        if kind == "array":
            self._must("<")
            element = attrs.evolve(self._type(""), name="element")
            self._must(">")
            return FieldShape(key, key, "array", fields=(element,))
        kind = _ALIASES.get(kind, kind)
        if kind not in PLAIN:
            raise ValueError(
                f"field {key!r}: type {kind or 'missing'!r} is not read from JSON; known are "
                f"{', '.join(PLAIN)}, struct<...> and array<...>"
            )
        return FieldShape(key, key, kind)

    def _peek(self) -> str:
        return self._tokens[self._at]

    def _next(self) -> str:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _must(self, token: str) -> None:
        found = self._next()
        if found.lower() != token:
            raise ValueError(f"{found or 'the end'!r} where {token or 'the end'!r} should be")


_MOST_FIELDS: Final = 1000
_LONG: Final = range(-(1 << 63), 1 << 63)


@attrs.frozen
class Inferred:
    """The result of an inference.

    :ivar schema: a JSON Schema
    :ivar read: number of bodies that are JSON objects
    :ivar others: number of other bodies
    :ivar left_out: fields without a single type, with the reason, as ``/user/age: ...``
    """

    schema: dict[str, Any]
    read: int
    others: int
    left_out: tuple[str, ...]


def infer(bodies: Iterable[bytes], *, times: bool = True) -> Inferred:
    """Infer the schema of ``bodies``; raises :class:`ValueError` if there is none.

    :param times: whether a string that is a time, or a date, in every body becomes that type; a
        later body with another string is then invalid
    """
    seen, read, others = _Seen(), 0, 0
    for body in bodies:
        try:
            value = json.loads(body.decode())
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            others += 1
            continue
        read += 1
        try:
            seen.add(value)
        except RecursionError:
            raise ValueError("a body is nested too deep") from None
        if seen.size() > _MOST_FIELDS:
            raise ValueError(
                f"more than {_MOST_FIELDS} fields: are keys of objects used as values? write "
                "a schema that leaves them out"
            )
    left_out: list[str] = []
    schema = seen.schema("", left_out, times=times)
    if schema is None:
        raise ValueError(f"none of {read + others} bodies is a JSON object with a typed field")
    return Inferred(schema, read, others, tuple(left_out))


def infer_topic(path: Path, topic: str, count: int, *, times: bool = True) -> Inferred:
    """Infer from the first ``count`` messages of a topic, taken evenly from its queues.

    Raises :class:`~lakelog.errors.SettingsError` if there is no schema.
    """
    try:
        with lakelog.open(path, mode="read") as store:
            queues = [store.read(topic, queue.queue_id) for queue in store.queues(topic)]
            messages = filter(None, chain.from_iterable(zip_longest(*queues)))
            found = infer((bytes(each.body) for each in islice(messages, count)), times=times)
        shape_of(found.schema)
    except ValueError as error:
        raise SettingsError(f"no schema of {topic} in {path}: {error}", key="--topic") from error
    return found


@attrs.define
class _Seen:
    """The values of one field."""

    kinds: set[str] = attrs.field(factory=set)
    formats: set[str] = attrs.field(factory=lambda: set(_FORMATS))
    fields: dict[str, _Seen] = attrs.field(factory=dict)
    element: _Seen | None = None

    def add(self, value: Any) -> None:
        if isinstance(value, dict):
            self.kinds.add("object")
            for key, each in value.items():
                self.fields.setdefault(key, _Seen()).add(each)
        elif isinstance(value, list):
            self.kinds.add("array")
            self.element = self.element or _Seen()
            for each in value:
                self.element.add(each)
        elif value is not None:
            self.kinds.add(_json_type(value))
            if isinstance(value, str):
                self.formats = {f for f in self.formats if is_time(value, _FORMATS[f])}

    def size(self) -> int:
        inner = sum(each.size() for each in self.fields.values())
        return 1 + inner + (self.element.size() if self.element else 0)

    def schema(self, at: str, left_out: list[str], *, times: bool) -> dict[str, Any] | None:
        kinds = {"number"} if self.kinds == {"integer", "number"} else self.kinds
        if len(kinds) != 1:
            what = " or ".join(sorted(kinds)) or "always null"
            left_out.append(f"{at or '/'}: {what}")
            return None
        (kind,) = kinds
        inner: dict[str, Any] = {"type": kind}
        if kind == "object":
            made = {
                key: each.schema(f"{at}/{key}", left_out, times=times)
                for key, each in self.fields.items()
            }
            inner["properties"] = {key: each for key, each in made.items() if each is not None}
        elif kind == "array" and self.element is not None:
            inner["items"] = self.element.schema(f"{at}/0", left_out, times=times)
        elif kind == "string" and times and self.formats:
            inner["format"] = min(self.formats, key=len)
        if all(inner.values()):
            return inner
        left_out.append(f"{at or '/'}: nothing in it has a type")
        return None


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "integer" if isinstance(value, int) and value in _LONG else "number"
