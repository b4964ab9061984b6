"""What a parser of bodies is: it replaces the column ``body`` by columns that mean something.

A parser goes to the processes that write data files: it is picklable, small, and the same call
gives the same answer in each of them. It never raises for what stands in a body: that row is
``bad``, and lands among the dead letters with its error and its raw body.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


@attrs.frozen(eq=False)
class Parsed:
    """What a parser made of some bodies.

    :ivar columns: a row for each body that is good, in the order of the bodies, under exactly the
        parser's ``fields``
    :ivar good: for each body whether it was parsed
    :ivar errors: for each body that was not, in their order, why: one line
    """

    columns: pa.RecordBatch
    good: NDArray[np.bool_]
    errors: Sequence[str] = ()


class BodyParser(Protocol):
    """Makes columns of bodies; see the module."""

    @property
    def fields(self) -> pa.Schema:
        """The columns that stand where ``body`` would; all of them can be null.

        No name is one of a message's columns (:data:`lakelog_lake.log.columns.NAMES`), ``day``,
        ``hour`` or ``error``, but for ``body`` itself.
        """

    def parse(self, bodies: pa.BinaryArray | pa.LargeBinaryArray, rows: pa.RecordBatch) -> Parsed:
        """Parse ``bodies``, none of which is null.

        :param rows: the other columns of the same messages, one row for each body
        """


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
