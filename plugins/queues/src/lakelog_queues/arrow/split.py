"""Splits many rows of bytes at a separator, vectorised."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Octets = NDArray[np.uint8]


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
