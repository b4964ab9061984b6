"""What tests ask parsers."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa

from lakelog_lake.bodies.base import BodyParser, Parsed


def parse(parser: BodyParser, *bodies: bytes, large: bool = False) -> Parsed:
    """The answer of a parser that travelled, checked for what every answer must be."""
    parser = pickle.loads(pickle.dumps(parser))
    rows = pa.RecordBatch.from_pydict({"queue_id": pa.array([0] * len(bodies), pa.int32())})
    found = parser.parse(pa.array(bodies, pa.large_binary() if large else pa.binary()), rows)
    found.columns.validate(full=True)
    assert found.columns.schema.equals(parser.fields)
    assert found.columns.num_rows == found.good.sum()
    assert len(found.errors) == len(bodies) - found.good.sum()
    assert all(error and "\n" not in error for error in found.errors)
    return found


def rows_of(parser: BodyParser, *bodies: bytes) -> list[dict[str, Any]]:
    """The columns of bodies that are good."""
    found = parse(parser, *bodies)
    assert not found.errors
    rows: list[dict[str, Any]] = found.columns.to_pylist()
    return rows


def error_of(parser: BodyParser, body: bytes) -> str:
    """Why ``body`` is bad."""
    found = parse(parser, body)
    assert not found.good.any()
    return found.errors[0]
