"""Binary search in a queue by physical offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.format.queue_units import RawUnits, is_filler

_FEW: Final = 256
"""So many units are read at once, and looked at together."""
_MANY: Final = 4096


def first_behind(read: Callable[[int, int], RawUnits], low: int, high: int, offset: int) -> int:
    """The first of the units ``low`` to ``high`` of a record at or behind ``offset``, or ``high``.

    Physical offsets go up along a queue; fillers, which have none, are passed over.
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
    """The last of the units ``low`` to ``high`` that is no filler, if there is one.

    :param fills: which units are fillers
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
    """The first of the units ``low`` to ``high`` that is no filler, if there is one.

    :param fills: which units are fillers
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
    """Physical offset behind the record of the last unit that is no filler; 0 without one."""
    last = last_real(read, low, high, fills)
    unit = None if last is None else read(last, 1)[0]
    return 0 if unit is None else int(unit["offset"]) + int(unit["size"])
