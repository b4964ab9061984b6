"""Bodies without a schema: bytes as they are, and text."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from lakelog_lake.bodies.base import Parsed, parsed


def not_utf8(bodies: pa.Array) -> dict[int, str]:
    """The rows that are not, and where they stop being it."""
    if _valid(bodies):
        return {}
    return dict(_faults(bodies, 0))


def without(bodies: pa.Array, faults: dict[int, str]) -> tuple[pa.Array, np.ndarray]:
    """The bodies that have no fault, and their rows."""
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
    """By halves: a row that is bad costs the others a few looks at fast speed."""
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
    """Bodies as they are; none is bad."""

    @property
    def fields(self) -> pa.Schema:
        """One column, ``body``."""
        return pa.schema([("body", pa.binary())])

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """All of them."""
        columns = pa.RecordBatch.from_arrays([bodies.cast(pa.binary())], schema=self.fields)
        return parsed(self.fields, [columns], {}, len(bodies))


@attrs.frozen
class String:
    """Bodies that are UTF-8; others are bad."""

    @property
    def fields(self) -> pa.Schema:
        """One column, ``body``."""
        return pa.schema([("body", pa.string())])

    def parse(self, bodies: pa.Array, rows: pa.RecordBatch) -> Parsed:  # noqa: ARG002  # a parser is given both
        """Those that are text."""
        faults = not_utf8(bodies)
        texts = as_strings(without(bodies, faults)[0]).cast(pa.string())
        columns = pa.RecordBatch.from_arrays([texts], schema=self.fields)
        return parsed(self.fields, [columns], faults, len(bodies))
