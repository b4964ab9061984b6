"""Bodies that are decoded one by one, by a library of their format, and then made columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import attrs
import pyarrow as pa

from lakelog_lake.bodies.base import Parsed, parsed
from lakelog_lake.errors import MayPass

Decode: TypeAlias = Callable[[bytes], Mapping[str, Any]]
"""The fields of a body by column; raises whatever is wrong with it."""

_STEP_ROWS = 4096


@attrs.frozen(slots=False)
class Rowwise:
    """A parser whose library reads one body at a time; made again in each process by its fields."""

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made again of the schema."""
        return {each.name: getattr(self, each.name) for each in attrs.fields(type(self))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @cached_property
    def _columns(self) -> tuple[pa.Schema, Any]:
        """The columns, and what makes them of a value of the library's."""
        raise NotImplementedError

    def _decode(self, body: bytes) -> Mapping[str, Any]:
        raise NotImplementedError

    @property
    def fields(self) -> pa.Schema:
        """A column for each field."""
        return self._columns[0]

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """The columns of the bodies that can be read."""
        return parse(bodies, self.fields, self._decode)


def parse(bodies: pa.Array, fields: pa.Schema, decode: Decode) -> Parsed:
    """The columns ``fields`` of the bodies that ``decode`` can read."""
    faults: dict[int, str] = {}
    parts = []
    for first in range(0, len(bodies), _STEP_ROWS):
        good = []
        for row, body in enumerate(bodies[first : first + _STEP_ROWS], first):
            try:
                good.append((row, decode(body.as_py())))
            except MayPass:  # nothing is wrong with the body
                raise
            except Exception as error:  # noqa: BLE001  # any: a library meets any bytes here
                faults[row] = _said(error)
        parts += _columns(good, fields, faults)
    return parsed(fields, parts, faults, len(bodies))


def _columns(
    rows: list[tuple[int, Mapping[str, Any]]], fields: pa.Schema, faults: dict[int, str]
) -> list[pa.RecordBatch]:
    """By halves, where a value does not fit its column."""
    if not rows:
        return []
    try:
        return [pa.RecordBatch.from_pylist([values for _, values in rows], schema=fields)]
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(rows) == 1:
            faults[rows[0][0]] = f"a value does not fit its column: {_said(error)}"
            return []
    half = len(rows) // 2
    return [*_columns(rows[:half], fields, faults), *_columns(rows[half:], fields, faults)]


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
