"""Detects property strings of equal layout: same length, same names at the same positions.

Messages of one producer often have such strings. Each property is then a slice of a table.
"""

from __future__ import annotations

import numpy as np

from lakelog.format.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from lakelog_queues.arrow.slices import Octets


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


def _parts(row: bytes) -> tuple[dict[bytes, slice], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
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
