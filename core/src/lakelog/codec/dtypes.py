"""NumPy views of record fields that start at arbitrary byte positions.

An array with a stride of one byte overlaps itself: element ``i`` is the field that would start at
byte ``i``. Indexing it with record starts gathers that field of all records at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lakelog.message import Body

PREFIX = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
"""The first 48 bytes of a record."""

SUFFIX = np.dtype(
    [
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
"""The 16 bytes before the body."""

LONG = np.dtype(">i8")
SHORT = np.dtype(">i2")


def anywhere(buffer: Body, dtype: np.dtype[Any]) -> NDArray[Any]:
    """``buffer`` as an array with one ``dtype`` element for every byte position."""
    length = max(0, len(buffer) - dtype.itemsize + 1)
    return np.ndarray((length,), dtype, buffer, strides=(1,))


def gather(buffer: Body, dtype: np.dtype[Any], positions: NDArray[np.int64]) -> NDArray[Any]:
    """The ``dtype`` at each of ``positions``.

    Fields are copied as opaque bytes. NumPy would otherwise copy field by field, which takes ten
    times as long.
    """
    whole = np.dtype((np.void, dtype.itemsize))
    return anywhere(buffer, whole)[positions].view(dtype)
