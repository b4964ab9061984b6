"""What a parser of bodies is: it replaces the column ``body`` by columns that mean something.

A parser goes to the processes that write data files: it is picklable, small, and the same call
gives the same answer in each of them. It never raises for what stands in a body: that row is
``bad``, and lands among the dead letters with its error and its raw body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

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

        No name is one of a message's columns (:data:`lakelog_spark.columns.NAMES`), ``day``,
        ``hour`` or ``error``, but for ``body`` itself.
        """

    def parse(self, bodies: pa.BinaryArray | pa.LargeBinaryArray, rows: pa.RecordBatch) -> Parsed:
        """Parse ``bodies``, none of which is null.

        :param rows: the other columns of the same messages, one row for each body
        """
