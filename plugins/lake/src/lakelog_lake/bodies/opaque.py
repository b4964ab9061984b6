"""Bodies without a schema: raw bytes, and text."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from lakelog_lake.bodies.base import Parsed, parsed


def not_utf8(bodies: pa.Array) -> dict[int, str]:
    """Errors of the rows that are not UTF-8, with the place."""
    if _valid(bodies):
        return {}
    return dict(_faults(bodies, 0))


def without(bodies: pa.Array, faults: dict[int, str]) -> tuple[pa.Array, np.ndarray]:
    """The bodies without a fault, and their indices."""
    rows = np.delete(np.arange(len(bodies)), list(faults))
    return (bodies.take(pa.array(rows)) if faults else bodies), rows


def _valid(bodies: pa.Array) -> bool:
    try:
        as_strings(bodies)
    except pa.ArrowInvalid:
        return False
    return True


def as_strings(bodies: pa.Array) -> pa.Array:
    """The same bytes as text; raises :class:`pyarrow.ArrowInvalid`."""
    return bodies.cast(pa.large_string() if pa.types.is_large_binary(bodies.type) else pa.string())


def _faults(bodies: pa.Array, first: int) -> list[tuple[int, str]]:
    """Search by halves: an invalid row costs few passes over the others."""
    if len(bodies) == 1:
        try:
            bodies[0].as_py().decode()
        except UnicodeDecodeError as error:
            return [(first, f"byte {error.start}: not UTF-8 ({error.reason})")]
        return []
    if _valid(bodies):
        return []
    half = len(bodies) // 2
    return [*_faults(bodies[:half], first), *_faults(bodies[half:], first + half)]


@attrs.frozen
class Binary:
    """Raw bodies; none is invalid."""

    @property
    def fields(self) -> pa.Schema:
        """One column, ``body``."""
        return pa.schema([("body", pa.binary())])

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """Return all bodies."""
        columns = pa.RecordBatch.from_arrays([bodies.cast(pa.binary())], schema=self.fields)
        return parsed(self.fields, [columns], {}, len(bodies))


@attrs.frozen
class String:
    """UTF-8 bodies; others are invalid."""

    @property
    def fields(self) -> pa.Schema:
        """One column, ``body``."""
        return pa.schema([("body", pa.string())])

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """Return the bodies that are UTF-8."""
        faults = not_utf8(bodies)
        texts = as_strings(without(bodies, faults)[0]).cast(pa.string())
        columns = pa.RecordBatch.from_arrays([texts], schema=self.fields)
        return parsed(self.fields, [columns], faults, len(bodies))
