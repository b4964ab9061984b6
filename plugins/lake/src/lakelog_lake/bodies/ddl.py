"""Parses Spark DDL: ``id bigint not null, user struct<name: string>, tags array<string>``.

The grammar is the part of Spark's ``StructType.fromDDL`` for types that JSON can be converted to.
A body without a ``not null`` field is invalid. ``tinyint`` and ``smallint`` become ``int``, as
Iceberg has neither.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from lakelog_lake.bodies.json_schema import PLAIN, FieldShape
from lakelog_lake.bodies.names import column_names, field_names

_TOKEN: Final = re.compile(r"\s*(?:--[^\n]*\n\s*)*(`(?:[^`]|``)+`|\w+|[<>,:()])")
_ALIASES: Final = {
    **dict.fromkeys(("tinyint", "byte", "smallint", "short", "integer"), "int"),
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}


def shape_of(text: str) -> FieldShape:
    """The shape of the body; raises :class:`ValueError`."""
    reading = _Reading(_tokens(text))
    fields = reading.fields(end="")
    names = column_names([each.key for each in fields])
    return FieldShape("", "", "struct", fields=_called(fields, names))


def _called(fields: list[FieldShape], names: tuple[str, ...]) -> tuple[FieldShape, ...]:
    return tuple(attrs.evolve(each, name=name) for each, name in zip(fields, names, strict=True))


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


class _Reading:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._at = 0

    def fields(self, end: str) -> list[FieldShape]:
        """Parse ``name type [not null] [comment]``, comma-separated, up to ``end``."""
        found = [self._field()]
        while self._peek() == ",":
            self._next()
            found.append(self._field())
        self._must(end)
        return found

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
            fields = self.fields(end=">")
            names = field_names([each.key for each in fields])
            return FieldShape(key, key, "struct", fields=_called(fields, names))
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
