"""Converts records and damage to Arrow rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa

from lakelog.arrow import schema, to_arrow
from lakelog.errors import CorruptRecord
from lakelog_lake.log.columns import ERROR, unpacked

if TYPE_CHECKING:
    from lakelog.format.record_batch import Damage, RecordBatch

_LARGEST_INT: Final = (1 << 31) - 1
_ROWS: Final = 8192
_BYTES: Final = 4 << 20


@attrs.frozen
class Tables:
    """Makes rows.

    :ivar store: the value of the column ``store``
    :ivar names: the columns, in table order
    :ivar unpack: whether bodies are unpacked
    :ivar lenient: whether a body that cannot be unpacked is returned as stored, instead of an error
    """

    store: str
    names: Sequence[str]
    unpack: bool
    lenient: bool

    def of_records(self, batch: RecordBatch) -> pa.RecordBatch:
        """One row for each record; raises :class:`~lakelog.errors.CorruptRecord`."""
        errors: Mapping[int, CorruptRecord] = {}
        if self.unpack and self.lenient:
            fields, errors = unpacked(batch, self._fields)
        else:
            fields = to_arrow(batch, columns=self._fields, decompress=self.unpack)
        return self._with_own(fields, self._errors(len(batch), errors), len(batch))

    def _errors(self, count: int, errors: Mapping[int, CorruptRecord]) -> pa.Array | None:
        if ERROR not in self.names:
            return None
        if not errors:
            return pa.nulls(count, pa.string())
        return pa.array([_error_text(errors.get(row)) for row in range(count)], pa.string())

    def of_damage(self, damages: Sequence[Damage]) -> pa.RecordBatch:
        """One row for each damage, with its place, length and cause; other columns are null."""
        count = len(damages)
        known: dict[str, list[Any]] = {
            "physical_offset": [each.offset for each in damages],
            "store_size": [_length(each) for each in damages],
        }
        arrays = [
            pa.array(known.get(each.name, [None] * count), each.type)
            for each in schema(self._fields)
        ]
        fields = pa.RecordBatch.from_arrays(arrays, names=self._fields)
        error_texts = pa.array(map(str, damages), pa.string()) if ERROR in self.names else None
        return self._with_own(fields, error_texts, count)

    @property
    def _fields(self) -> list[str]:
        return [name for name in self.names if name not in ("store", ERROR)]

    def _with_own(
        self, fields: pa.RecordBatch, errors: pa.Array | None, rows: int
    ) -> pa.RecordBatch:
        arrays = [*fields.columns, *([] if errors is None else [errors])]
        if "store" in self.names:
            arrays.insert(0, pa.repeat(pa.scalar(self.store, pa.string()), rows))
        return pa.RecordBatch.from_arrays(arrays, names=list(self.names))


def _length(damage: Damage) -> int | None:
    length = damage.end_offset - damage.offset
    return length if length <= _LARGEST_INT else None


def _error_text(error: CorruptRecord | None) -> str | None:
    return None if error is None else error.what


def joined(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches, as each one costs Spark about a millisecond."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for table in tables:
        held.append(table)
        count, size = count + len(table), size + table.nbytes
        if count >= _ROWS or size >= _BYTES:
            yield from _as_one(held)
            held, count, size = [], 0, 0
    yield from _as_one(held)


def _as_one(tables: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(tables) > 1:
        yield from pa.Table.from_batches(tables).combine_chunks().to_batches()
    else:
        yield from tables
