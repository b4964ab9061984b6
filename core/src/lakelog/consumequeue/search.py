"""Binary search in a queue by physical offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from lakelog.consumequeue.unitbytes import RawUnits, is_filler

_FEW: Final = 256
"""So many units are read at once, and looked at together."""


def first_behind(read: Callable[[int, int], RawUnits], low: int, high: int, offset: int) -> int:
    """The first of the units ``low`` to ``high`` of a record at or behind ``offset``, or ``high``.

    Physical offsets go up along a queue; fillers, which stand at its front, are before all.
    """
    while high - low > _FEW:
        middle = (low + high) // 2
        if _is_before(read(middle, 1), offset):
            low = middle + 1
        else:
            high = middle
    units = read(low, high - low)
    before = (units["offset"] < offset) | is_filler(units)
    behind = np.flatnonzero(~before)
    return low + int(behind[0]) if len(behind) else high


def _is_before(unit: RawUnits, offset: int) -> bool:
    return not len(unit) or bool(unit[0]["offset"] < offset) or bool(is_filler(unit)[0])
