"""Avro bodies of a registry: decoded by their writer's schema, resolved to the reader's."""

from __future__ import annotations

import json
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any

import attrs

from lakelog_lake.bodies.avro import Renamed, columns_of, datum, understood
from lakelog_lake.bodies.names import needs, refused
from lakelog_lake.bodies.registry.client import (
    Schema,
    SchemaRegistry,
    UnknownSchema,
    header_of,
    split,
)
from lakelog_lake.bodies.rowwise import Rowwise

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "AVRO"


@attrs.frozen(slots=False)
class RegistryAvro(Rowwise):
    """A parser of Avro bodies with Confluent's header.

    :ivar reader: the schema of the columns
    """

    registry: SchemaRegistry
    reader: Schema

    @classmethod
    def of(cls, place: str) -> RegistryAvro:
        """The parser for ``URL#SUBJECT[@VERSION]``.

        Raises :class:`~lakelog.errors.SettingsError` and
        :class:`~lakelog_lake.errors.RegistryUnreachable`.
        """
        try:
            import fastavro
        except ImportError as error:
            raise needs("fastavro", "avro") from error
        registry, name, more = split(place, "avro-registry")
        if more:
            raise refused(f"an Avro schema has one record: leave #{more} out", "--body")
        try:
            made = cls(registry, registry.named(name))
            _checked(made.reader)
            made._schema, made.fields  # noqa: B018  # raises early if they cannot be made
        except UnknownSchema as error:
            raise refused(f"{registry.url} has no {name}: {error}", "--body") from error
        except (
            *(ValueError, TypeError, KeyError, RecursionError),
            *(fastavro.schema.SchemaParseException, fastavro.schema.UnknownType),
        ) as error:
            raise refused(f"not a supported Avro schema: {error}", name) from error
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
        number = header_of(body)
        if number not in self._writers:
            found = _checked(self.registry.by_id(number))
            self._writers[number] = _parsed(found) if found != self.reader else None
        file = BytesIO(body)
        file.seek(5)
        writer = self._writers[number]
        pair = (self._schema, None) if writer is None else (writer, self._schema)
        columns: dict[str, Any] = self._columns[1](datum(file, len(body), *pair))
        return columns


def _checked(schema: Schema) -> Schema:
    if schema.kind != KIND:
        raise ValueError(f"the registry's schema is {schema.kind.title()}, not Avro")
    return schema


def _plain(schema: Schema) -> Any:
    return understood(json.loads(schema.text))


def _others(schema: Schema) -> Any:
    """The schemas that it refers to, innermost first."""
    for _, each in schema.references:
        yield from _others(each)
        yield _plain(each)


def _parsed(schema: Schema) -> Any:
    from fastavro.schema import parse_schema

    named: dict[str, Any] = {}
    seen: list[Any] = []
    for each in _others(schema):
        if each not in seen:  # several may refer to one
            seen.append(each)
            parse_schema(each, named_schemas=named)
    return parse_schema(_plain(schema), named_schemas=named)
