"""Copies parts of a buffer into Arrow arrays: once, by NumPy as a table, or by Arrow's ``take``.

Short parts of equal length become the rows of a table. Otherwise the whole buffer becomes an array
that alternates parts and gaps; ``take`` then copies the parts. Offsets must ascend, so parts in
another order are selected by permuted indices.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lakelog.format.record_batch import anywhere
from lakelog.message import Body

Longs = NDArray[np.int64]
Octets = NDArray[np.uint8]
_SHORT_BYTES: Final = 1024
_MOST_BYTES: Final = (1 << 31) - 1


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
    laid = _laid_over(buffer, base, positions, ends)
    return laid.take(pa.array(_even(count, order)))


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


def _laid_over(buffer: Body, base: int, positions: Longs, ends: Longs) -> pa.BinaryArray:
    # Offsets are start and end of each part in turn. So even elements are the parts, and odd
    # elements are the gaps between them.
    offsets = np.empty((len(positions), 2), np.int32)
    offsets[:, 0], offsets[:, 1] = positions - base, ends - base
    part = pa.py_buffer(memoryview(buffer)[base : int(ends[-1])])
    return pa.BinaryArray.from_buffers(
        pa.binary(), 2 * len(positions) - 1, [None, pa.py_buffer(offsets), part]
    )


def _even(count: int, order: Longs | None) -> Longs:
    """The index of each part among parts and gaps, in the requested order."""
    if order is None:
        return np.arange(0, 2 * count, 2)
    places = np.empty(count, np.int64)
    places[order] = np.arange(0, 2 * count, 2)
    return places


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


def parts_of(array: pa.BinaryArray) -> tuple[NDArray[np.uint8], Longs]:
    """The bytes of a whole array, and the start of each element, followed by the last end."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    octets = np.frombuffer(data, np.uint8) if data is not None and data.size else _NOTHING
    return octets, bounds


_NOTHING: Final = np.empty(0, np.uint8)


def of_few(array: pa.BinaryArray, name: Any) -> pa.StringArray:
    """Apply ``name`` to the values; called once for each distinct value."""
    coded = array.dictionary_encode()
    names = pa.array([name(each) for each in coded.dictionary.to_pylist()], pa.string())
    return pc.take(names, coded.indices)
