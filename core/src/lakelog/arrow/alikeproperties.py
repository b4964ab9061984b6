"""Property strings that are built alike: of one length, the same names in the same places.

So are those of messages that one producer wrote. A column is then a part of a table.
"""

from __future__ import annotations

import numpy as np

from lakelog.arrow.slices import Octets
from lakelog.format.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR


def alike_properties(table: Octets) -> dict[bytes, slice] | None:
    """By name, which columns of ``table`` its last value is; ``None`` if they are not alike.

    :param table: a property string in each row, at least one
    """
    values, fixed = _parts(table[0].tobytes())
    marks = np.count_nonzero(table == NAME_VALUE_SEPARATOR[0])
    marks += np.count_nonzero(table == PROPERTY_SEPARATOR[0])
    first = table[0]
    of_first = np.isin(first, (NAME_VALUE_SEPARATOR[0], PROPERTY_SEPARATOR[0]))
    # Every separator of the first row in every row, and no other one in any.
    if marks != len(table) * int(of_first.sum()):
        return None
    fixed |= of_first
    return values if bool((table[:, fixed] == first[fixed]).all()) else None


def _parts(row: bytes) -> tuple[dict[bytes, slice], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Where the value of each name stands in a row, and which of its bytes belong to names."""
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
