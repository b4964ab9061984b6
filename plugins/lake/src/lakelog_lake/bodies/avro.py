"""Avro bodies as typed columns: each body is one record datum without a container file.

With ``avro-confluent`` the datum follows Confluent's header (a zero byte, then a schema id of 4
bytes). The header is skipped and no registry is used: each datum is read by the given schema. Bytes
behind the datum make a body invalid. With a registry, each datum is decoded by its writer's schema,
resolved to the reader's. What has another logical type there (a timestamp that was a long) is read
by the reader's; what had one, and has it no longer, is a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import cached_property
from io import BytesIO
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa

from lakelog.errors import raised_by_handler
from lakelog_lake.bodies import schema_registry
from lakelog_lake.bodies.base import (
    Rowwise,
    as_it_is,
    column_names,
    day,
    micros,
    needs,
    refused,
)

Renamed: TypeAlias = Callable[[Any], Any]
"""Converts a datum of the library to the names and values of its Arrow type."""
Typed: TypeAlias = tuple[pa.DataType, Renamed]
"""The Arrow type of a schema, and the conversion to it."""
_PLAIN: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_TIMES: Final = ("timestamp-millis", "timestamp-micros")
_LOGICAL: Final = (
    *((each, "long") for each in _TIMES),
    *(("decimal", each) for each in ("bytes", "fixed")),
    *(("date", "int"), ("uuid", "string")),
)
_MOST_DIGITS: Final = 38
_KIND: Final = "AVRO"


def columns_of(schema: Any, others: Sequence[Any] = ()) -> tuple[pa.Schema, Renamed]:
    """The columns of a record; raises :class:`ValueError` with the place in the schema.

    :param others: schemas of named types, each after those that it refers to
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("a body must be a record")
    types = _Types()
    for each in others:
        types.of(each, "", "", ())
    kind, renamed = types.record(schema, "", ())
    return pa.schema(list(kind)), renamed


class _Types:
    def __init__(self) -> None:
        self._named: dict[str, tuple[Any, str]] = {}

    def of(self, schema: Any, at: str, space: str, inside: tuple[str, ...]) -> Typed:
        """The type of a field at ``at``, in the namespace ``space``."""
        if isinstance(schema, list):
            return self.of(_not_null(schema, at), at, space, inside)
        if isinstance(schema, str):
            return self._by_name(schema, at, space, inside)
        logical = _logical(schema, at)
        if logical is not None:
            self._keep(schema, space)
            return logical, _converter(schema)
        if schema["type"] in ("array", "map"):
            return self._container(schema, at, space, inside)
        if schema["type"] in ("record", "enum", "fixed"):
            space = self._keep(schema, space)
            return self._of_named(schema, at, space, inside)
        return self.of(schema["type"], at, space, inside)

    def record(self, schema: Any, at: str, inside: tuple[str, ...], space: str = "") -> Typed:
        """A struct; ``inside`` are the enclosing records."""
        space = self._keep(schema, space)
        full = _full(schema["name"], schema.get("namespace", space))
        if full in inside:
            raise ValueError(f"{at}: record {full} contains itself: no column can")
        if not schema["fields"]:
            raise ValueError(f"{at or '/'}: record {full} has no fields")
        keys = [field["name"] for field in schema["fields"]]
        names = column_names(keys, are_columns=not at)
        made = [
            self.of(field["type"], f"{at}/{field['name']}", space, (*inside, full))
            for field in schema["fields"]
        ]
        kind = pa.struct([(name, type_) for name, (type_, _) in zip(names, made, strict=True)])
        steps = [(k, n, renamed) for k, n, (_, renamed) in zip(keys, names, made, strict=True)]
        defaults = {each["name"]: each["default"] for each in schema["fields"] if "default" in each}

        def renamed(value: Any) -> dict[str, Any] | None:
            if value is None:
                return None
            if len(value) < len(steps):  # the default of a record may lack fields that have one
                value = {**defaults, **value}
            return {n: step(value[k]) for k, n, step in steps}

        return kind, renamed

    def _keep(self, schema: Any, space: str) -> str:
        """Register a named type; return the namespace inside of it."""
        if "name" not in schema:
            return space
        full = _full(schema["name"], schema.get("namespace", space))
        space = full.rpartition(".")[0]
        self._named[full] = (schema, space)
        return space

    def _by_name(self, name: str, at: str, space: str, inside: tuple[str, ...]) -> Typed:
        if name in _PLAIN:
            return _PLAIN[name], _raw if name == "bytes" else as_it_is
        known = self._named.get(_full(name, space)) or self._named.get(name)
        if known is None:
            raise ValueError(f"{at}: type {name} is not supported")
        return self._of_named(known[0], at, known[1], inside)

    def _of_named(self, schema: Any, at: str, space: str, inside: tuple[str, ...]) -> Typed:
        logical = _logical(schema, at)
        if logical is not None:
            return logical, _converter(schema)
        if schema["type"] == "enum":
            return pa.string(), as_it_is
        if schema["type"] == "fixed":
            if schema["size"] < 1:
                raise ValueError(f"{at}: a fixed of 0 bytes")
            return pa.binary(), _raw
        return self.record(schema, at, inside, space)

    def _container(self, schema: Any, at: str, space: str, inside: tuple[str, ...]) -> Typed:
        part = "items" if schema["type"] == "array" else "values"
        kind, step = self.of(schema[part], f"{at}/{part}", space, inside)
        if part == "values":
            return (
                pa.map_(pa.string(), kind),
                lambda value: (
                    None if value is None else [(key, step(each)) for key, each in value.items()]
                ),
            )
        kind = pa.list_(pa.field("element", kind))
        if step is as_it_is:
            return kind, step
        return kind, lambda value: None if value is None else [step(each) for each in value]


_MILLIS: Final = 1000


def _converter(schema: Any) -> Renamed:
    """Convert to a logical type what the library leaves as it is: it applies those of the writer.

    A writer's schema may lack the logical type, and a default value has the underlying one.
    """
    logical, under = schema["logicalType"], schema["type"]
    if logical == "date":
        return lambda value: day(value) if isinstance(value, int) else value
    if logical in _TIMES:
        unit = _MILLIS if logical == _TIMES[0] else 1
        return lambda value: micros(value * unit) if isinstance(value, int) else value
    if under in ("bytes", "fixed"):
        scale = schema.get("scale", 0)
        return lambda value: _decimal(_raw(value), scale)
    return lambda value: None if value is None else str(value)


def _raw(value: Any) -> Any:
    """The bytes of a default value, in which each character is a byte."""
    return value.encode("iso-8859-1") if isinstance(value, str) else value


def _decimal(value: Any, scale: int) -> Any:
    if not isinstance(value, bytes):
        return value
    unscaled = int.from_bytes(value, "big", signed=True)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _not_null(union: list[Any], at: str) -> Any:
    left = [each for each in union if each != "null"]
    if len(left) != 1:
        raise ValueError(f"{at}: a union is only supported for one type with null")
    return left[0]


def understood(schema: Any) -> Any:
    """Return ``schema`` without unsupported logical types, which the library would apply."""
    if isinstance(schema, list):
        return [understood(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    pair = (schema.get("logicalType"), schema.get("type"))
    return {
        key: value if key == "default" else understood(value)
        for key, value in schema.items()
        if key != "logicalType" or pair in _LOGICAL
    }


def _logical(schema: Any, at: str) -> pa.DataType | None:
    """The type for a logical type; ``None`` for its underlying type."""
    logical, under = schema.get("logicalType"), schema.get("type")
    if logical in _TIMES and under == "long":
        return pa.timestamp("us", "UTC")
    if logical == "date" and under == "int":
        return pa.date32()
    if logical == "uuid" and under == "string":
        return pa.string()
    if logical == "decimal" and under in ("bytes", "fixed"):
        digits = schema["precision"]
        if digits > _MOST_DIGITS:
            raise ValueError(f"{at}: a decimal of {digits} digits; the most is {_MOST_DIGITS}")
        return pa.decimal128(digits, schema.get("scale", 0))
    return None


@contextmanager
def _supported(source: str) -> Iterator[None]:
    """Convert errors of making columns to :class:`~lakelog.errors.SettingsError`."""
    try:
        import fastavro
    except ImportError as error:
        raise needs("fastavro", "avro") from error
    try:
        yield
    except (
        *(ValueError, TypeError, KeyError, RecursionError),
        *(fastavro.schema.SchemaParseException, fastavro.schema.UnknownType),
    ) as error:
        raise refused(f"not a supported Avro schema: {error}", source) from error


@attrs.frozen(slots=False)
class Avro(Rowwise):
    """A parser of Avro bodies.

    :ivar reader: the schema of the columns
    :ivar confluent: whether Confluent's header comes first
    :ivar registry: where the schemas of the headers are; without it, each datum has the reader's
    """

    reader: schema_registry.Schema
    confluent: bool = True
    registry: schema_registry.SchemaRegistry | None = None

    @classmethod
    def of(cls, text: str, source: str, *, confluent: bool) -> Avro:
        """Parse the schema ``text``, as JSON; raises :class:`~lakelog.errors.SettingsError`."""
        return cls._made(source, schema_registry.Schema(_KIND, text), confluent)

    @classmethod
    def at(cls, place: str) -> Avro:
        """The parser for ``URL#SUBJECT[@VERSION]``.

        Raises :class:`~lakelog.errors.SettingsError` and
        :class:`~lakelog_lake.errors.RegistryUnreachable`.
        """
        registry, name, more = schema_registry.split(place, "avro-registry")
        if more:
            raise refused(f"an Avro schema has one record: leave #{more} out", "--body")
        return cls._made(name, registry.named(name), True, registry)

    @classmethod
    def _made(cls, source: str, reader: schema_registry.Schema, *more: Any) -> Avro:
        with _supported(source):
            made = cls(_checked(reader), *more)
            made._schema, made.fields  # noqa: B018  # raises early if they cannot be made
        return made

    @cached_property
    def _schema(self) -> Any:
        return _parsed(self.reader)

    @cached_property
    def _columns(self) -> tuple[pa.Schema, Renamed]:
        return columns_of(_plain(self.reader), list(_others(self.reader)))

    @cached_property
    def _writers(self) -> dict[int, Any]:
        """Parsed writer schemas by id; ``None`` for the reader's own."""
        return {}

    def _decode(self, body: bytes) -> dict[str, Any]:
        file, writer = BytesIO(body), None
        if self.confluent:
            number = schema_registry.header_of(body)
            file.seek(schema_registry.HEADER_BYTES)
            if self.registry is not None:
                writer = self._writer(number, self.registry)
        pair = (self._schema, None) if writer is None else (writer, self._schema)
        columns: dict[str, Any] = self._columns[1](datum(file, len(body), *pair))
        return columns

    def _writer(self, number: int, registry: schema_registry.SchemaRegistry) -> Any:
        if number not in self._writers:
            found = _checked(registry.by_id(number))
            self._writers[number] = _parsed(found) if found != self.reader else None
        return self._writers[number]


def datum(file: BytesIO, end: int, writer: Any, reader: Any) -> Any:
    """Read the datum that fills ``file`` up to ``end``; raises :class:`ValueError`.

    :param writer: the schema of the datum; :param reader: the schema of the result, if different
    """
    from fastavro import schemaless_reader

    try:
        value = schemaless_reader(file, writer, reader)
    except EOFError as error:
        raise ValueError(f"byte {file.tell()}: it ends within the datum") from error
    except IndexError as error:
        what = "no such symbol of an enum, or branch of a union"
        raise ValueError(f"byte {file.tell()}: {what}") from error
    except Exception as error:
        if raised_by_handler(error):
            raise
        what = str(error) or type(error).__name__
        raise ValueError(f"byte {file.tell()}: {what}") from error
    if file.tell() != end:
        raise ValueError(f"byte {file.tell()}: the datum ends here, before the end of the body")
    return value


def _checked(schema: schema_registry.Schema) -> schema_registry.Schema:
    if schema.kind != _KIND:
        raise ValueError(f"the registry's schema is {schema.kind.title()}, not Avro")
    return schema


def _plain(schema: schema_registry.Schema) -> Any:
    return understood(json.loads(schema.text))


def _others(schema: schema_registry.Schema) -> Any:
    """The schemas that it refers to, innermost first."""
    for _, each in schema.references:
        yield from _others(each)
        yield _plain(each)


def _parsed(schema: schema_registry.Schema) -> Any:
    from fastavro.schema import parse_schema

    named: dict[str, Any] = {}
    seen: list[Any] = []
    for each in _others(schema):
        if each not in seen:  # several may refer to one
            seen.append(each)
            parse_schema(each, named_schemas=named)
    return parse_schema(_plain(schema), named_schemas=named)
