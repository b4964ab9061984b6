"""Units of a simple queue as bytes: ``offset i64 | size i32 | tagsCode i64``, big-endian.

Source: RocketMQ's ``ConsumeQueue``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lakelog.format.units import Units

UNIT: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
UNIT_BYTES: Final = UNIT.itemsize
FILLER_SIZE: Final = 0x7FFFFFFF
"""Size in the units that stand before the first one of a queue that starts above 0."""

RawUnits = NDArray[Any]
NONE: Final = np.zeros(0, UNIT)


def pack(units: Units) -> RawUnits:
    """Units as they stand in a file."""
    raw = np.empty(len(units), UNIT)
    raw["offset"], raw["size"], raw["tags_code"] = units.offsets, units.sizes, units.tags_codes
    return raw


def unpack(raw: RawUnits, first: int) -> Units:
    """Units of a file, the first of which has queue offset ``first``."""
    return Units(
        np.arange(first, first + len(raw), dtype=np.int64),
        raw["offset"].astype(np.int64),
        raw["size"].astype(np.int32),
        raw["tags_code"].astype(np.int64),
        np.ones(len(raw), np.int32),
    )


def join(*parts: RawUnits) -> RawUnits:
    """Runs of units as one; ``np.concatenate`` would turn them into the machine's byte order."""
    joined = np.empty(sum(map(len, parts)), UNIT)
    np.concatenate(parts, out=joined)
    return joined


def filler(count: int) -> RawUnits:
    """What stands before the first unit of a queue: ``0 | 0x7FFFFFFF | 0``."""
    raw = np.zeros(count, UNIT)
    raw["size"] = FILLER_SIZE
    return raw


def is_filler(raw: RawUnits) -> NDArray[np.bool_]:
    """Which units only fill the place of records that the queue never held."""
    fills: NDArray[np.bool_] = raw["size"] == FILLER_SIZE
    return fills & (raw["offset"] == 0) if fills.any() else fills


def alike(one: RawUnits, other: RawUnits) -> NDArray[np.bool_]:
    """Which units are of the same records; what stands for tags may differ."""
    same: NDArray[np.bool_] = (one["offset"] == other["offset"]) & (one["size"] == other["size"])
    return same


def valid_length(raw: RawUnits) -> int:
    """How many units stand at the front; the first with a size <= 0 or offset < 0 ends them."""
    bad = (raw["size"] <= 0) | (raw["offset"] < 0)
    return int(bad.argmax()) if bad.any() else len(raw)


def ordered_length(raw: RawUnits, reached: int) -> tuple[int, int]:
    """How many units at the front are of records that follow one another, and where these end.

    Units of a hole can lead to one record together, see :mod:`.replaced`.

    :param reached: physical offset behind the record of the unit before them, in bytes
    """
    length = valid_length(raw)
    real = np.flatnonzero(~is_filler(raw[:length]))
    starts = raw["offset"][real].astype(np.int64)
    ends = starts + raw["size"][real]
    before = np.concatenate([[reached], ends[:-1]])
    led_to_again = (ends == before) & (raw["tags_code"][real] == 0)
    wrong = (starts < before) & ~led_to_again
    if wrong.any():
        at = int(wrong.argmax())
        return int(real[at]), int(before[at])
    return length, int(ends[-1]) if len(ends) else reached
