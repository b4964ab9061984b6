"""Reads the records of a task as columns, with bodies unpacked and optionally parsed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from lakelog_lake.bodies.base import BodyParser, Parsed
from lakelog_lake.errors import BadParser
from lakelog_lake.log.columns import NAMES
from lakelog_lake.log.range_reader import DamagePolicy, steps
from lakelog_lake.log.unpacking import unpacked
from lakelog_lake.tables.fields import BODY

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from lakelog.codec import RecordBatch
    from lakelog.errors import CorruptRecord

_NAMES: Final = NAMES[1:]


@attrs.define
class Rejects:
    """Rows whose bodies do not parse, with their errors.

    :ivar from_offset: records before this physical offset are ignored
    """

    from_offset: int
    errors: dict[int, str] = attrs.field(factory=dict)

    def add(self, offsets: NDArray[np.int64], parsed: Parsed) -> None:
        """Add the rows of ``offsets``, one for each body, that did not parse."""
        for offset, error in zip(offsets[~parsed.good].tolist(), parsed.errors, strict=True):
            if offset >= self.from_offset:
                self.errors[offset] = error

    def add_packed(self, batch: RecordBatch, errors: Mapping[int, CorruptRecord]) -> None:
        """Add rows whose bodies cannot be unpacked, by index in ``batch``."""
        for row, error in errors.items():
            offset = int(batch.physical_offsets[row])
            if offset >= self.from_offset:
                self.errors[offset] = str(error)


@attrs.frozen
class Reader:
    """The records of one task; rows are indices in ``batch``."""

    batch: RecordBatch
    damages: DamagePolicy
    step_bytes: int

    def columns(self, rows: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in steps; bodies that cannot be unpacked are returned as stored.

        Raises :class:`~lakelog_lake.errors.CorruptBody` for such a body if damage is not skipped.
        """
        for part in steps(self.batch, rows, self.step_bytes):
            columns, errors = unpacked(part, _NAMES)
            self.damages.bodies(errors)
            yield columns

    def refused(self, rows: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Yield rows of dead letters in steps, including bodies that cannot be unpacked."""
        for part in steps(self.batch, rows, self.step_bytes):
            yield unpacked(part, _NAMES)[0]

    def parsed(
        self, rows: NDArray[np.int64], parser: BodyParser, rejects: Rejects
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows that parse, in steps, with the parser's columns instead of ``body``.

        A body that cannot be unpacked counts as not parsed, without an error. Raises
        :class:`~lakelog_lake.errors.BadParser` for a parser that violates its contract.
        """
        for part in steps(self.batch, rows, self.step_bytes):
            columns, errors = unpacked(part, _NAMES)
            if errors:
                rejects.add_packed(part, errors)
                columns = columns.filter(_mask(~np.isin(np.arange(len(part)), list(errors))))
            if not columns.num_rows:
                continue
            rest = columns.drop_columns([BODY])
            parsed = parser.parse(columns.column(BODY), rest)
            _check(parser, parsed, columns.num_rows)
            if not parsed.good.all():
                rejects.add(rest.column("physical_offset").to_numpy(), parsed)
                rest = rest.filter(_mask(parsed.good))
            yield _beside(rest, parsed.columns)


def _check(parser: BodyParser, parsed: Parsed, rows: int) -> None:
    good = int(parsed.good.sum())
    expected = (rows, good, rows - good, parser.fields.names)
    found = (
        len(parsed.good),
        parsed.columns.num_rows,
        len(parsed.errors),
        parsed.columns.schema.names,
    )
    if found != expected:
        raise BadParser(
            f"{parser!r} gave (flags, rows, errors, columns) {found} for {expected}: it violates "
            "the contract of lakelog_lake.bodies.base"
        )


def _mask(good: NDArray[np.bool_]) -> pa.Array:
    import pyarrow as pa

    return pa.array(good)


def _beside(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    names = [*one.schema.names, *other.schema.names]
    return pa.RecordBatch.from_arrays([*one.columns, *other.columns], names=names)
