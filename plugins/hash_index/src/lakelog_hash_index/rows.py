"""Byte strings of varying length, gathered from a buffer a length at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Octets = NDArray[np.uint8]
Longs = NDArray[np.int64]


def groups(lengths: Longs) -> Iterator[tuple[int, Longs]]:
    """Each length that occurs, and the indexes of the strings that have it, ascending."""
    if not len(lengths):
        return
    if (lengths == lengths[0]).all():
        yield int(lengths[0]), np.arange(len(lengths))
        return
    # NumPy sorts 16 bits by their digits, much faster than wider numbers.
    narrow: NDArray[Any] = lengths.astype(np.uint16) if lengths.max() < 1 << 16 else lengths
    order = np.argsort(narrow, kind="stable")
    ordered = lengths[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for part in np.split(order, cuts):
        yield int(lengths[part[0]]), part


def rows(octets: Octets, starts: Longs, length: int) -> Octets:
    """The ``length`` bytes from each of ``starts`` on, one row each."""
    if not length or not len(starts):
        return np.zeros((len(starts), length), np.uint8)
    places = max(0, len(octets) - length + 1)
    whole: NDArray[Any] = np.ndarray((places,), f"V{length}", octets, strides=(1,))
    return whole[starts].view(np.uint8).reshape(len(starts), length)
