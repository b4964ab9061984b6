"""Hashes values to 64 bits per row, with NumPy over Arrow's buffers.

A value of variable length is a polynomial of its elements, modulo 2**64, computed from running sums
without a loop over rows. The hashes detect accidental differences, not deliberate collisions.
Bodies, which are long, get the faster CRC-32 and Adler-32 instead.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from zlib import adler32

import numpy as np
import pyarrow as pa

from lakelog.format.checksum import crc32

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Longs = NDArray[np.int64]

_BASE: Final = 0x9E3779B97F4A7C15
_INVERSE: Final = pow(_BASE, -1, 1 << 64)
_MIX: Final = np.uint64(0xBF58476D1CE4E5B9)
_NULL: Final = np.uint64(0x94D049BB133111EB)
_LEAST_BITS: Final = 20
_LOW: Final = 0xFFFFFFFF


def of_columns(batch: pa.RecordBatch) -> Words:
    """One hash over all columns of each row."""
    total = np.zeros(batch.num_rows, np.uint64)
    for column in batch.columns:
        total = _mixed(total * np.uint64(_BASE) + of_values(column))
    return total


def of_values(array: Any) -> Words:
    """One hash for each value of an array of any scalar type, of lists or of maps."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return of_values(array.cast(kind.value_type))
    if pa.types.is_map(kind):
        pairs = of_values(array.keys) * np.uint64(_BASE) + of_values(array.items)
        found = _folded(_mixed(pairs), _offsets(array))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = _folded(of_values(array.values), _offsets(array))
    elif _is_text(kind):
        found = _of_text(array)
    else:
        found = _of_numbers(array)
    if array.null_count:
        found = np.where(array.is_null().to_numpy(zero_copy_only=False), _NULL, found)
    return found


def of_bodies(array: Any) -> Words:
    """CRC-32 of each value in the low 32 bits, Adler-32 in the high ones."""
    data, offsets = _bytes(array)
    view = memoryview(data.data)
    ends = offsets.tolist()
    parts = (view[low:high] for low, high in pairwise(ends))
    found = (crc32(each) | adler32(each) << 32 for each in parts)
    return np.fromiter(found, np.uint64, len(array))


def crcs(bodies: Words) -> Longs:
    """Extract the CRC-32 from the results of :func:`of_bodies`."""
    return (bodies & np.uint64(_LOW)).astype(np.int64)


def _is_text(kind: Any) -> bool:
    types = pa.types
    return any(
        of(kind)
        for of in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _of_numbers(array: Any) -> Words:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz))
    plain = array.cast(pa.int64()).fill_null(0)
    return _mixed(plain.to_numpy(zero_copy_only=False).view(np.uint64))


def _of_text(array: Any) -> Words:
    data, offsets = _bytes(array)
    return _folded(data.astype(np.uint64), offsets)


def _bytes(array: Any) -> tuple[NDArray[np.uint8], Longs]:
    """The concatenated bytes of an array of texts, and the offsets of its values."""
    wide = array.cast(pa.large_binary())
    _, places, data = wide.buffers()
    first = wide.offset
    offsets = np.frombuffer(places, np.int64)[first : first + len(wide) + 1]
    found = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return found, offsets


def _offsets(array: Any) -> Longs:
    found: Longs = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _folded(elements: Words, offsets: Longs) -> Words:
    """For each run of ``elements``, mix the sum of (element + 1) * BASE**index with its length."""
    if len(offsets) < 2:
        return np.zeros(0, np.uint64)
    low, end = int(offsets[0]), int(offsets[-1])
    powers, inverses = _powers(_BASE, end - low + 1), _powers(_INVERSE, end - low + 1)
    sums = np.zeros(end - low + 1, np.uint64)
    np.cumsum((elements[low:end] + np.uint64(1)) * powers[:-1], out=sums[1:])
    starts, ends = offsets[:-1] - low, offsets[1:] - low
    lengths = (ends - starts).astype(np.uint64)
    return _mixed((sums[ends] - sums[starts]) * inverses[starts] + lengths * _MIX)


def _powers(base: int, count: int) -> Words:
    """BASE**0 and following powers, cached for a few sizes."""
    return _many_powers(base, max(count.bit_length(), _LEAST_BITS))[:count]


@lru_cache(maxsize=6)
def _many_powers(base: int, bits: int) -> Words:
    found = np.full(1 << bits, np.uint64(base))
    found[0] = 1
    np.cumprod(found, out=found)
    found.flags.writeable = False
    return found


def _mixed(words: Words) -> Words:
    """Mix the bits of each word, so that small differences affect all bits."""
    words = words ^ (words >> np.uint64(30))
    words = words * _MIX
    return words ^ (words >> np.uint64(27))
