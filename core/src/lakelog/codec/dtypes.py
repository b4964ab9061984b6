"""Runs of records as NumPy sees them: fields gathered from, and scattered to, any byte position.

An array whose stride is one byte overlaps itself: element ``i`` is the field that would start at
byte ``i``. Indexing it with record starts gathers or scatters that field of all records at once.
"""

from __future__ import annotations

from functools import lru_cache
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


@lru_cache(maxsize=4)
def head_dtype(born_bytes: int, store_bytes: int) -> np.dtype[Any]:
    """All fields before the body, with hosts of these lengths."""
    hosts = [("born_host", f"V{born_bytes}"), ("store_timestamp", ">i8")]
    return np.dtype(
        [*PREFIX.descr, *hosts, ("store_host", f"V{store_bytes}"), *SUFFIX.descr],
    )


def anywhere(buffer: Body, dtype: np.dtype[Any]) -> NDArray[Any]:
    """``buffer`` as an array of ``dtype`` at every byte position where one fits."""
    length = max(0, len(buffer) - dtype.itemsize + 1)
    return np.ndarray((length,), dtype, buffer, strides=(1,))


def gather(buffer: Body, dtype: np.dtype[Any], positions: NDArray[np.int64]) -> NDArray[Any]:
    """The ``dtype`` at each of ``positions``.

    Copied as plain bytes: NumPy copies field by field otherwise, which takes ten times as long.
    """
    whole = np.dtype((np.void, dtype.itemsize))
    return anywhere(buffer, whole)[positions].view(dtype)


def scatter(
    buffer: bytearray, dtype: np.dtype[Any], positions: NDArray[np.int64], values: NDArray[Any]
) -> None:
    """Write each of ``values`` as a ``dtype`` at its position, as :func:`gather` reads them."""
    whole = np.dtype((np.void, dtype.itemsize))
    plain = values.astype(dtype, copy=False).view(whole)
    step = _step(positions)
    if step:
        np.ndarray(plain.shape, whole, buffer, int(positions[0]), (step,))[:] = plain
    else:
        anywhere(buffer, whole)[positions] = plain


def _step(positions: NDArray[np.int64]) -> int:
    """How far ``positions`` are apart where that is always the same, else 0."""
    steps = positions[1:] - positions[:-1]
    return int(steps[0]) if len(steps) and (steps == steps[0]).all() else 0
