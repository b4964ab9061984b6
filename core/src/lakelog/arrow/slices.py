"""Byte strings of a buffer as Arrow arrays; property strings as columns.

Parts of a buffer are copied once, by NumPy as a table, or by Arrow's ``take``. Short parts of equal
length become the rows of a table. Otherwise the whole buffer becomes an array that alternates parts
and gaps; ``take`` then copies the parts. Offsets must ascend, so parts in another order are
selected by permuted indices.

Messages of one producer often have property strings of one layout: equal length, and the same names
at the same positions. Each property is then a slice of the table of these strings. Other strings
are split at the separators of all rows at once.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lakelog.format.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from lakelog.format.properties import KEY_SEPARATOR
from lakelog.format.record_batch import RecordBatch, anywhere
from lakelog.lazy import cached_property
from lakelog.message import Body

Longs = NDArray[np.int64]
Octets = NDArray[np.uint8]
_SHORT_BYTES: Final = 1024
_MOST_BYTES: Final = (1 << 31) - 1
_LARGEST_TABLE: Final = 16
"""Largest size of a rows-by-names table, in cells per property."""


def slices(buffer: Body, positions: Longs, lengths: Longs) -> pa.BinaryArray:
    """``buffer[position : position + length]`` for each position, as ``binary``.

    :param positions: in bytes, in any order; parts may overlap
    :param lengths: in bytes, one per position
    """
    count = len(positions)
    if not count:
        return pa.array([], pa.binary())
    width = int(lengths[0])
    if 0 < width <= _SHORT_BYTES and count * width <= _MOST_BYTES and (lengths == width).all():
        return of_one_width(table_of(buffer, positions, width))
    order = None
    if count > 1 and (positions[1:] < positions[:-1]).any():
        order = np.argsort(positions, kind="stable")
        positions, lengths = positions[order], lengths[order]
    base = int(positions[0])
    ends = positions + lengths
    if int(ends.max()) - base > _MOST_BYTES or (positions[1:] < ends[:-1]).any():
        return _one_by_one(buffer, positions, ends, order)
    # Offsets are start and end of each part in turn. So even elements are the parts, and odd
    # elements are the gaps between them.
    offsets = np.stack((positions - base, ends - base), axis=1).astype(np.int32)
    stretch = pa.py_buffer(memoryview(buffer)[base : int(ends[-1])])
    laid = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), stretch]
    )
    parts = 2 * np.arange(count) if order is None else 2 * np.argsort(order)
    return laid.take(pa.array(parts))


def table_of(buffer: Body, positions: Longs, width: int) -> Octets:
    """The ``width`` bytes at each position, as an array of shape ``(len(positions), width)``."""
    found = anywhere(buffer, np.dtype((np.void, width)))[positions]
    return found.view(np.uint8).reshape(-1, width)


def of_one_width(table: Octets) -> pa.BinaryArray:
    """Each row of ``table``, which has shape ``(count, width)``, as a value."""
    count, width = table.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    parts = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(table))]
    return pa.BinaryArray.from_buffers(pa.binary(), count, parts)


def _one_by_one(buffer: Body, positions: Longs, ends: Longs, order: Longs | None) -> Any:
    """Copy parts that overlap, or whose distances exceed 32 bits."""
    view = memoryview(buffer)
    parts = [view[a:b] for a, b in zip(positions.tolist(), ends.tolist(), strict=True)]
    made = pa.array([bytes(part) for part in parts], pa.binary())
    return made if order is None else made.take(pa.array(np.argsort(order)))


def as_text(array: pa.BinaryArray) -> pa.StringArray:
    """``array`` as strings; invalid UTF-8 is replaced as by ``bytes.decode``."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if each is None else each.decode(errors="replace") for each in array.to_pylist()
        ]
        return pa.array(texts, pa.string())


def parts_of(array: pa.BinaryArray) -> tuple[Octets, Longs]:
    """The bytes of a whole array, and the start of each element, followed by the last end."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    octets = (
        np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    )
    return octets, bounds


def alike_properties(table: Octets) -> dict[bytes, slice] | None:
    """The columns of ``table`` with the last value of each name; ``None`` if layouts differ.

    :param table: one property string per row, at least one row
    """
    values, fixed = _parts(table[0].tobytes())
    marks = np.count_nonzero(table == NAME_VALUE_SEPARATOR[0])
    marks += np.count_nonzero(table == PROPERTY_SEPARATOR[0])
    first = table[0]
    of_first = (first == NAME_VALUE_SEPARATOR[0]) | (first == PROPERTY_SEPARATOR[0])
    # Every separator of the first row must be in every row, and there must be no others.
    if marks != len(table) * int(of_first.sum()):
        return None
    fixed |= of_first
    return values if bool((table[:, fixed] == first[fixed]).all()) else None


def _parts(row: bytes) -> tuple[dict[bytes, slice], NDArray[np.bool_]]:
    """The position of each name's value in a row, and a mask of the bytes that belong to names."""
    values: dict[bytes, slice] = {}
    names = np.zeros(len(row), np.bool_)
    start = 0
    for each in row.split(PROPERTY_SEPARATOR):
        name, separator, value = each.partition(NAME_VALUE_SEPARATOR)
        if separator:
            mark = start + len(name)
            names[start:mark] = True
            values[name] = slice(mark + 1, mark + 1 + len(value))
        start += len(each) + len(PROPERTY_SEPARATOR)
    return values, names


@attrs.frozen(eq=False)
class Split:
    """Non-empty pieces in order, as arrays with one element per piece.

    :ivar rows: row of the piece
    :ivar starts: position of its first byte
    :ivar ends: position after its last byte
    """

    rows: Longs
    starts: Longs
    ends: Longs

    def __len__(self) -> int:
        return len(self.rows)


def split(octets: Octets, bounds: Longs, separator: int) -> Split:
    """The non-empty pieces of each row.

    :param bounds: start of each row in ``octets``, and the end of the last one
    :param separator: the value of one byte
    """
    low = int(bounds[0])
    # A piece starts at the start of a row or after a separator, and ends at a separator or at the
    # end of a row. Sorting both lists pairs them.
    marks = np.flatnonzero(octets[low : int(bounds[-1])] == separator) + low
    starts = np.sort(np.concatenate((bounds[:-1], marks + 1)), kind="stable")
    ends = np.sort(np.concatenate((bounds[1:], marks)), kind="stable")
    counts = np.diff(np.searchsorted(marks, bounds)) + 1
    rows = np.repeat(np.arange(len(counts)), counts)
    some = ends > starts
    return Split(rows[some], starts[some], ends[some])


def first_mark(octets: Octets, pieces: Split, mark: int) -> Longs:
    """The position of the first ``mark`` in each piece; -1 if there is none."""
    if not len(pieces):
        return np.empty(0, np.int64)
    low = int(pieces.starts[0])
    marks = np.flatnonzero(octets[low : int(pieces.ends[-1])] == mark) + low
    if len(marks) == len(pieces) and bool(((marks >= pieces.starts) & (marks < pieces.ends)).all()):
        return marks
    if not len(marks):
        return np.full(len(pieces), -1)
    found = marks[np.minimum(np.searchsorted(marks, pieces.starts), len(marks) - 1)]
    return np.where((found >= pieces.starts) & (found < pieces.ends), found, -1)


class PropertyColumns:
    """The properties of the records of one batch; the last value wins if a name repeats."""

    def __init__(self, batch: RecordBatch) -> None:
        self._count = len(batch)
        raw = slices(batch.buffer, batch.property_positions, batch.property_lengths)
        self._octets, self._bounds = parts_of(raw)

    @cached_property
    def _table(self) -> Octets | None:
        """All property strings as rows of a table, if they have equal length."""
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
        """The properties, with the position of the separator after each name."""
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
        # the last assignment wins, as required for a repeated name
        found[pieces.rows[these]] = these
        there = found >= 0
        chosen = found[there]
        begins = marks[chosen] + 1
        values = slices(self._octets.data, begins, pieces.ends[chosen] - begins)
        if there.all():
            return values
        places = np.cumsum(there) - 1
        return values.take(pa.array(places, mask=~there))

    def _named(self, name: bytes) -> Longs:
        """The indices of properties with this name."""
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
        """The words of the property ``name`` in each record; empty if it is missing."""
        octets, bounds = parts_of(self.values(name))
        words = split(octets, bounds, ord(KEY_SEPARATOR))
        texts = as_text(slices(octets.data, words.starts, words.ends - words.starts))
        return pa.ListArray.from_arrays(self._offsets(words.rows), texts)

    def _offsets(self, rows: Longs) -> pa.Array:
        """The start of each row's elements, for elements in row order."""
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
    """For each property, whether it is the last of its name in its record.

    Names with invalid UTF-8 are compared after replacement of the invalid bytes.
    """
    if not len(rows):
        return np.ones(0, np.bool_)
    coded = as_text(names).dictionary_encode()
    different = len(coded.dictionary)
    keys = rows * different + coded.indices.to_numpy()
    # With repeated indices, NumPy's assignment keeps the last value, which marks the last property
    # of each name in a record. Where that table would be too large, a stable sort finds the same.
    if count * different <= _LARGEST_TABLE * len(rows) + 4096:
        table = np.empty(count * different, np.int64)
        table[keys] = np.arange(len(keys))
        return np.asarray(table[keys] == np.arange(len(keys)))
    order = np.argsort(keys, kind="stable")
    last = np.ones(len(keys), np.bool_)
    last[order[:-1]] = keys[order[1:]] != keys[order[:-1]]
    return last
