"""Binary search in a queue by physical offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from lakelog.runtime.lazy import np
from lakelog_queues.units.simpleunits import UNIT_BYTES, each_unit, fillers, unit_at

if TYPE_CHECKING:
    from lakelog_queues.units.simpleunits import Flags

Read: TypeAlias = Callable[[int, int], bytes]
"""Returns units in file format, by the number of the first one and their count."""
Fills: TypeAlias = "Callable[[bytes], Flags | None]"
"""Determines which units are fillers; ``None`` if none is."""
_FEW: Final = 32
"""Largest number of units that are read and compared at once, instead of a further bisection."""
_MANY: Final = 4096


def first_behind(read: Read, low: int, high: int, offset: int) -> int:
    """The number of the first unit of a record at or after physical ``offset``, or ``high``.

    :param low: first unit of the range; physical offsets must ascend in it, except for fillers
    :param high: end of the range
    """
    while high - low > _FEW:
        middle = (low + high) // 2
        last = last_real(read, low, middle + 1)
        if last is None or unit_at(read(last, 1), 0).offset < offset:
            low = middle + 1
        else:
            high = last
    data = read(low, high - low)
    units, real = each_unit(data), _real(data, fillers)
    return next((low + at for at in real if units[at].offset >= offset), high)


def last_real(read: Read, low: int, high: int, fills: Fills = fillers) -> int | None:
    """The number of the last unit from ``low`` to ``high`` that is no filler, or ``None``."""
    look = 1
    while high > low:
        start = max(low, high - look)
        real = _real(read(start, high - start), fills)
        if real:
            return start + real[-1]
        high, look = start, _MANY
    return None


def first_real(read: Read, low: int, high: int, fills: Fills = fillers) -> int | None:
    """The number of the first unit from ``low`` to ``high`` that is no filler, or ``None``."""
    while low < high:
        data = read(low, min(_MANY, high - low))
        real = _real(data, fills)
        if real:
            return low + real[0]
        if not data:
            return None
        low += len(data) // UNIT_BYTES
    return None


def _real(data: bytes, fills: Fills) -> Sequence[int]:
    """The indices of the units that are no fillers."""
    filled = fills(data)
    return range(len(data) // UNIT_BYTES) if filled is None else np.flatnonzero(~filled).tolist()


def end_of_last(read: Read, low: int, high: int, fills: Fills = fillers) -> int:
    """Physical end offset of the record of the last unit that is no filler; 0 without one."""
    last = last_real(read, low, high, fills)
    return 0 if last is None else unit_at(read(last, 1), 0).end
