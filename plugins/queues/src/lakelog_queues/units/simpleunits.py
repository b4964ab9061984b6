"""Units of a simple queue, in file format and as columns; what of them is in order.

In file format: ``offset i64 | size i32 | tagsCode i64``, big-endian. Source: RocketMQ's
``ConsumeQueue``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lakelog.format.units import Units

UNIT: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
UNIT_BYTES: Final = UNIT.itemsize

RawUnits = NDArray[Any]

FILLER_SIZE: Final = 0x7FFFFFFF
"""Size field of the filler units before the first unit of a queue that starts above 0."""

NONE: Final = np.zeros(0, UNIT)


def pack(units: Units) -> RawUnits:
    """Units in file format."""
    raw = np.empty(len(units), UNIT)
    raw["offset"], raw["size"], raw["tags_code"] = units.offsets, units.sizes, units.tags_codes
    return raw


def unpack(raw: RawUnits, first: int) -> Units:
    """Decode units of a file; the first one has queue offset ``first``."""
    return Units(
        np.arange(first, first + len(raw), dtype=np.int64),
        raw["offset"].astype(np.int64),
        raw["size"].astype(np.int32),
        raw["tags_code"].astype(np.int64),
        np.ones(len(raw), np.int32),
    )


def join(*parts: RawUnits) -> RawUnits:
    """Concatenate units; ``np.concatenate`` alone would change their byte order."""
    joined = np.empty(sum(map(len, parts)), UNIT)
    np.concatenate(parts, out=joined)
    return joined


def filler(count: int) -> RawUnits:
    """Filler units, which precede the first unit of a queue: ``0 | 0x7FFFFFFF | 0``."""
    raw = np.zeros(count, UNIT)
    raw["size"] = FILLER_SIZE
    return raw


def is_filler(raw: RawUnits) -> NDArray[np.bool_]:
    """Which units are fillers."""
    fills: NDArray[np.bool_] = raw["size"] == FILLER_SIZE
    return fills & (raw["offset"] == 0) if fills.any() else fills


def alike(one: RawUnits, other: RawUnits) -> NDArray[np.bool_]:
    """Which units refer to the same records; their tag codes may differ."""
    same: NDArray[np.bool_] = (one["offset"] == other["offset"]) & (one["size"] == other["size"])
    return same


def valid_length(raw: RawUnits) -> int:
    """The number of leading units that are valid: size above 0 and offset not negative."""
    bad = (raw["size"] <= 0) | (raw["offset"] < 0)
    return int(bad.argmax()) if bad.any() else len(raw)


def ordered_length(raw: RawUnits, reached: int) -> tuple[int, int]:
    """The number of leading units whose records ascend, and where the last of these records ends.

    Several units of a repaired hole may refer to one record, see
    :mod:`lakelog_queues.files.replaced`.

    :param reached: end of the record of the preceding unit, a physical offset in bytes
    """
    length = valid_length(raw)
    real = np.flatnonzero(~is_filler(raw[:length]))
    starts = raw["offset"][real].astype(np.int64)
    ends = starts + raw["size"][real]
    before = np.concatenate([[reached], ends[:-1]])
    # A repair may let several units point to one filler record. Such a unit has the end of its
    # predecessor and tags code 0; it does not break the order.
    led_to_again = (ends == before) & (raw["tags_code"][real] == 0)
    wrong = (starts < before) & ~led_to_again
    if wrong.any():
        at = int(wrong.argmax())
        return int(real[at]), int(before[at])
    return length, int(ends[-1]) if len(ends) else reached
