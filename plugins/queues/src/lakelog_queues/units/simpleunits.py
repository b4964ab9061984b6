"""Units of a simple queue, in file format and as columns, and checks of their order.

In file format: ``offset i64 | size i32 | tagsCode i64``, big-endian. Source: RocketMQ's
``ConsumeQueue``. Functions of bytes need no NumPy, unless they find fillers.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from lakelog.format.queue_offsets import Flags, Units
from lakelog.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


RawUnits: TypeAlias = "NDArray[Any]"
"""Units in file format, an array with named fields."""
UNIT: Final = [("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]
_ONE: Final = Struct(">qiq")
UNIT_BYTES: Final = _ONE.size
_SIZE_AT: Final = 8
FILLER_SIZE: Final = 0x7FFFFFFF
"""Size field of the filler units before the first unit of a queue that starts above 0."""
_FILLER_SIZE: Final = FILLER_SIZE.to_bytes(4, "big")
_SIGN: Final = 0x80
_SIGNS: Final = bytes(each >= _SIGN for each in range(256))


class OneUnit(NamedTuple):
    """The fields of a unit; ``end`` is the physical offset behind its record."""

    offset: int
    size: int
    tags_code: int

    @property
    def end(self) -> int:
        """Physical offset behind its record."""
        return self.offset + self.size


def unit_at(data: bytes | memoryview, at: int) -> OneUnit:
    """Unit ``at`` of units in file format; -1 is the last one."""
    return OneUnit._make(_ONE.unpack_from(data, at * UNIT_BYTES + (len(data) if at < 0 else 0)))


def each_unit(data: bytes | memoryview) -> list[OneUnit]:
    """All units as objects; slow for many units."""
    return list(map(OneUnit._make, _ONE.iter_unpack(data)))


def columns(data: bytes | memoryview) -> RawUnits:
    """Units in file format as an array with named fields, without a copy."""
    return np.frombuffer(data, UNIT)


def pack(units: Units) -> RawUnits:
    """Units in file format."""
    raw = np.empty(len(units), UNIT)
    raw["offset"], raw["size"], raw["tags_code"] = units.offsets, units.sizes, units.tags_codes
    return raw


def unpack(raw: RawUnits, first: int) -> Units:
    """Decode units of a file; the first one has queue offset ``first``."""
    counts = np.empty(len(raw), np.int32)
    counts.fill(1)  # np.ones takes 2 us for a few
    return Units(
        np.arange(first, first + len(raw), dtype=np.int64),
        raw["offset"].astype(np.int64),
        raw["size"].astype(np.int32),
        raw["tags_code"].astype(np.int64),
        counts,
    )


def no_units() -> Units:
    """Columns without an element."""
    return unpack(columns(b""), 0)


def filler(count: int) -> RawUnits:
    """Filler units, which precede the first unit of a queue: ``0 | 0x7FFFFFFF | 0``."""
    raw = np.zeros(count, UNIT)
    raw["size"] = FILLER_SIZE
    return raw


def is_filler(raw: RawUnits) -> Flags:
    """For each unit, whether it is a filler."""
    fills: Flags = (raw["size"] == FILLER_SIZE) & (raw["offset"] == 0)
    return fills


def fillers(data: bytes | memoryview) -> Flags | None:
    """For each unit, whether it is a filler; ``None`` if none is."""
    if _FILLER_SIZE not in bytes(data):
        return None
    fills = is_filler(columns(data))
    return fills if fills.any() else None


def alike(one: RawUnits, other: RawUnits) -> Flags:
    """For each pair of units, whether both refer to one record; their tags codes may differ."""
    same: Flags = (one["offset"] == other["offset"]) & (one["size"] == other["size"])
    return same


def valid_length(data: bytes) -> int:
    """The number of leading units that are valid: size above 0 and offset not negative.

    A slice has the same byte of every unit. It is a long number to Python, so that one operation
    joins the bytes of all units.
    """
    count = len(data) // UNIT_BYTES
    offset, *size = (
        int.from_bytes(data[at::UNIT_BYTES], "big") for at in (0, *range(_SIZE_AT, _SIZE_AT + 4))
    )
    nonzero = (size[0] | size[1] | size[2] | size[3]).to_bytes(count, "big")
    negative = (offset | size[0]).to_bytes(count, "big").translate(_SIGNS)
    found = nonzero.find(0), negative.find(1)
    return min((each for each in found if each >= 0), default=count)


def ordered_length(data: bytes, reached: int) -> tuple[int, int]:
    """The number of leading units whose records ascend, and where the last of these records ends.

    Several units of a repaired hole may refer to one record, see
    :mod:`lakelog_queues.files.replaced`.

    :param reached: end of the record of the preceding unit, a physical offset in bytes
    """
    length = valid_length(data)
    raw = columns(data)[:length]
    real = np.flatnonzero(~is_filler(raw))
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
