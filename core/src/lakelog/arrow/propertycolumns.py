"""Property strings as columns: tags, keys, the unique key, and the whole map."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lakelog.arrow.alikeproperties import alike_properties
from lakelog.arrow.slices import Longs, Octets, as_text, of_one_width, parts_of, slices
from lakelog.arrow.split import Split, first_mark, split
from lakelog.codec import RecordBatch
from lakelog.codec.dtypes import anywhere
from lakelog.format.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from lakelog.format.properties import KEY_SEPARATOR
from lakelog.runtime.cached import cached_property

_LARGEST_TABLE: Final = 16
"""A table of rows by names may have this many cells per property."""


class PropertyColumns:
    """The properties of the records of one batch; of a name that repeats, the last value."""

    def __init__(self, batch: RecordBatch) -> None:
        self._count = len(batch)
        raw = slices(batch.buffer, batch.property_positions, batch.property_lengths)
        self._octets, self._bounds = parts_of(raw)

    @cached_property
    def _table(self) -> Octets | None:
        """All property strings, if they have one length."""
        width = int(self._bounds[1] - self._bounds[0]) if self._count else 0
        if not width or (np.diff(self._bounds) != width).any():
            return None
        first = int(self._bounds[0])
        return self._octets[first : first + self._count * width].reshape(-1, width)

    @cached_property
    def _alike(self) -> dict[bytes, slice] | None:
        return None if self._table is None else alike_properties(self._table)

    @cached_property
    def _pieces(self) -> tuple[Split, Longs]:
        """The properties, and where the value of each starts."""
        pieces = split(self._octets, self._bounds, PROPERTY_SEPARATOR[0])
        marks = first_mark(self._octets, pieces, NAME_VALUE_SEPARATOR[0])
        named = marks >= 0
        if not named.all():
            pieces = Split(pieces.rows[named], pieces.starts[named], pieces.ends[named])
            marks = marks[named]
        return pieces, marks

    def values(self, name: str) -> pa.BinaryArray:
        """The value of the property ``name`` in each record, or null."""
        if self._table is not None and self._alike is not None:
            part = self._alike.get(name.encode())
            if part is None:
                return pa.nulls(self._count, pa.binary())
            return of_one_width(self._table[:, part])
        pieces, marks = self._pieces
        found = np.full(self._count, -1)
        these = self._named(name.encode())
        found[pieces.rows[these]] = these  # the last of a name is written last
        there = found >= 0
        chosen = found[there]
        begins = marks[chosen] + 1
        values = slices(self._octets.data, begins, pieces.ends[chosen] - begins)
        if there.all():
            return values
        places = np.cumsum(there) - 1
        return values.take(pa.array(places, mask=~there))

    def _named(self, name: bytes) -> Longs:
        """Which properties have this name."""
        pieces, marks = self._pieces
        these = np.flatnonzero(marks - pieces.starts == len(name))
        if not len(these):
            return these
        found = anywhere(self._octets.data, np.dtype((np.bytes_, len(name))))
        return np.asarray(these[found[pieces.starts[these]] == name])

    def texts(self, name: str) -> pa.StringArray:
        """The value of ``name`` in each record as text, or null."""
        return as_text(self.values(name))

    def words(self, name: str) -> pa.ListArray:
        """The words of the property ``name`` in each record; none where it is missing."""
        octets, bounds = parts_of(self.values(name))
        words = split(octets, bounds, ord(KEY_SEPARATOR))
        texts = as_text(slices(octets.data, words.starts, words.ends - words.starts))
        return pa.ListArray.from_arrays(self._offsets(words.rows), texts)

    def _offsets(self, rows: Longs) -> pa.Array:
        """Where the elements of each row start, for elements in the order of rows."""
        offsets = np.zeros(self._count + 1, np.int32)
        np.cumsum(np.bincount(rows, minlength=self._count), out=offsets[1:])
        return pa.array(offsets)

    def maps(self) -> pa.MapArray:
        """All properties of each record."""
        pieces, marks = self._pieces
        data = self._octets.data
        names = slices(data, pieces.starts, marks - pieces.starts)
        last = _last_of_each(pieces.rows, names, self._count)
        ends = pieces.ends
        if not last.all():
            names = names.filter(pa.array(last))
            pieces, marks, ends = (
                Split(pieces.rows[last], pieces.starts[last], ends[last]),
                marks[last],
                ends[last],
            )
        values = slices(data, marks + 1, ends - marks - 1)
        return pa.MapArray.from_arrays(self._offsets(pieces.rows), as_text(names), as_text(values))


def _last_of_each(rows: Longs, names: pa.BinaryArray, count: int) -> NDArray[np.bool_]:
    """For each property, whether none of its name follows in its record.

    Names that are no UTF-8 count as they will be written, with what is broken replaced.
    """
    if not len(rows):
        return np.ones(0, np.bool_)
    coded = as_text(names).dictionary_encode()
    different = len(coded.dictionary)
    keys = rows * different + coded.indices.to_numpy()
    if count * different <= _LARGEST_TABLE * len(rows) + 4096:
        table = np.empty(count * different, np.int64)
        table[keys] = np.arange(len(keys))
        return np.asarray(table[keys] == np.arange(len(keys)))
    order = np.argsort(keys, kind="stable")
    last = np.ones(len(keys), np.bool_)
    last[order[:-1]] = keys[order[1:]] != keys[order[:-1]]
    return last
