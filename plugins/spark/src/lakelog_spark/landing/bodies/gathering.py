"""Puts together what a parser found: columns of the good rows, errors of the bad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lakelog_spark.landing.bodying import Parsed

_LONGEST: Final = 300


def parsed(
    fields: pa.Schema, parts: Sequence[pa.RecordBatch], faults: Mapping[int, str], rows: int
) -> Parsed:
    """The answer for ``rows`` bodies.

    :param parts: the good rows, in order
    :param faults: why the others are bad, by row
    """
    good = np.ones(rows, dtype=np.bool_)
    bad = sorted(faults)
    good[bad] = False
    return Parsed(_one(fields, parts), good, tuple(_line(faults[row]) for row in bad))


def _one(fields: pa.Schema, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=fields)
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _line(error: str) -> str:
    """One line of a bounded length."""
    line = " ".join(error.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
