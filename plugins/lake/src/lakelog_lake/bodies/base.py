"""The protocol of body parsers, which replace the column ``body`` by typed columns.

A parser is sent to the processes that write data files. It must be small, picklable, and
deterministic in each process. It must not raise for the content of a body: the row is marked as not
good, and lands in the table of dead letters with its error and its raw body.
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
    """The result of parsing some bodies.

    :ivar columns: one row for each parsed body, in the order of the bodies, with exactly the
        parser's ``fields``
    :ivar good: whether each body was parsed, one flag for each body
    :ivar errors: one line of text for each body that was not parsed, in the order of the bodies
    """

    columns: pa.RecordBatch
    good: NDArray[np.bool_]
    errors: Sequence[str] = ()


class BodyParser(Protocol):
    """Converts bodies to columns; the module's docstring has the contract."""

    @property
    def fields(self) -> pa.Schema:
        """The columns in place of ``body``; all of them are nullable.

        No name is one of a message's columns (:data:`lakelog_lake.log.columns.NAMES`), ``day``,
        ``hour`` or ``error``, except ``body`` itself.
        """

    def parse(self, bodies: pa.BinaryArray | pa.LargeBinaryArray, rows: pa.RecordBatch) -> Parsed:
        """Parse ``bodies``, none of which is null.

        :param rows: the other columns of the same messages, one row for each body
        """


_LONGEST: Final = 300


def parsed(
    fields: pa.Schema, parts: Sequence[pa.RecordBatch], faults: Mapping[int, str], rows: int
) -> Parsed:
    """Build the result for ``rows`` bodies.

    :param parts: the good rows, in order
    :param faults: errors of the others, by row
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
    """Limit an error to one line of bounded length."""
    line = " ".join(error.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
