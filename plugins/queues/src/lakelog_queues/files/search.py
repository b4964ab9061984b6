"""Binary search in a queue by physical offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog_queues.units.simpleunits import RawUnits, is_filler

_FEW: Final = 256
"""Largest number of units that are read and compared at once, instead of a further bisection."""
_MANY: Final = 4096


def first_behind(read: Callable[[int, int], RawUnits], low: int, high: int, offset: int) -> int:
    """The number of the first unit of a record at or after physical ``offset``, or ``high``.

    :param read: returns units in file format, by the number of the first one and their count
    :param low: first unit of the range; physical offsets must ascend in it, except for fillers
    :param high: end of the range
    """
    while high - low > _FEW:
        middle = (low + high) // 2
        last = last_real(read, low, middle + 1)
        if last is None or read(last, 1)[0]["offset"] < offset:
            low = middle + 1
        else:
            high = last
    units = read(low, high - low)
    before = (units["offset"] < offset) | is_filler(units)
    behind = np.flatnonzero(~before)
    if len(behind):
        return low + int(behind[0])
    return high


def last_real(
    read: Callable[[int, int], RawUnits],
    low: int,
    high: int,
    fills: Callable[[RawUnits], NDArray[np.bool_]] = is_filler,
) -> int | None:
    """The number of the last unit from ``low`` to ``high`` that is no filler, or ``None``.

    :param fills: determines which units are fillers
    """
    look = 1
    while high > low:
        start = max(low, high - look)
        real = np.flatnonzero(~fills(read(start, high - start)))
        if len(real):
            return start + int(real[-1])
        high, look = start, _MANY
    return None


def first_real(
    read: Callable[[int, int], RawUnits],
    low: int,
    high: int,
    fills: Callable[[RawUnits], NDArray[np.bool_]] = is_filler,
) -> int | None:
    """The number of the first unit from ``low`` to ``high`` that is no filler, or ``None``.

    :param fills: determines which units are fillers
    """
    while low < high:
        units = read(low, min(_MANY, high - low))
        real = np.flatnonzero(~fills(units))
        if len(real):
            return low + int(real[0])
        if not len(units):
            return None
        low += len(units)
    return None


def end_of_last(
    read: Callable[[int, int], RawUnits],
    low: int,
    high: int,
    fills: Callable[[RawUnits], NDArray[np.bool_]] = is_filler,
) -> int:
    """Physical end offset of the record of the last unit that is no filler; 0 without one."""
    last = last_real(read, low, high, fills)
    unit = None if last is None else read(last, 1)[0]
    return 0 if unit is None else int(unit["offset"]) + int(unit["size"])
