"""Parsers that decode bodies one by one with a library, and then build columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import attrs
import pyarrow as pa

from lakelog_lake.bodies.base import Parsed, parsed
from lakelog_lake.errors import TemporaryError

Decode: TypeAlias = Callable[[bytes], Mapping[str, Any]]
"""Decodes the fields of a body by column; raises any error for an invalid body."""

_STEP_ROWS = 4096


@attrs.frozen(slots=False)
class Rowwise:
    """A parser whose library decodes single bodies; its cached properties are not pickled."""

    def __getstate__(self) -> dict[str, Any]:
        """The state without cached values, which are rebuilt from the schema."""
        return {each.name: getattr(self, each.name) for each in attrs.fields(type(self))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @cached_property
    def _columns(self) -> tuple[pa.Schema, Any]:
        """The columns, and the converter for a value of the library."""
        raise NotImplementedError

    def _decode(self, body: bytes) -> Mapping[str, Any]:
        raise NotImplementedError

    @property
    def fields(self) -> pa.Schema:
        """A column for each field."""
        return self._columns[0]

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """Parse the bodies that can be decoded."""
        return parse(bodies, self.fields, self._decode)


def parse(bodies: pa.Array, fields: pa.Schema, decode: Decode) -> Parsed:
    """The columns ``fields`` of the bodies that ``decode`` accepts."""
    faults: dict[int, str] = {}
    parts = []
    for first in range(0, len(bodies), _STEP_ROWS):
        good = []
        for row, body in enumerate(bodies[first : first + _STEP_ROWS], first):
            try:
                good.append((row, decode(body.as_py())))
            except TemporaryError:  # not an error of the body
                raise
            except Exception as error:  # noqa: BLE001  # a library may raise anything for arbitrary bytes
                faults[row] = _error_text(error)
        parts += _columns(good, fields, faults)
    return parsed(fields, parts, faults, len(bodies))


def _columns(
    rows: list[tuple[int, Mapping[str, Any]]], fields: pa.Schema, faults: dict[int, str]
) -> list[pa.RecordBatch]:
    """Build columns; split by halves where a value does not fit its column."""
    if not rows:
        return []
    try:
        return [pa.RecordBatch.from_pylist([values for _, values in rows], schema=fields)]
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(rows) == 1:
            faults[rows[0][0]] = f"a value does not fit its column: {_error_text(error)}"
            return []
    half = len(rows) // 2
    return [*_columns(rows[:half], fields, faults), *_columns(rows[half:], fields, faults)]


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__
