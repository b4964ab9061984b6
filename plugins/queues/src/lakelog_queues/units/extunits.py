"""The binary format of ``consumequeue_ext``, and the addresses of its units; pure functions.

``size i16 | tagsCode i64 | msgStoreTime i64 | bitMapSize i16 | bitmap``, big-endian; ``size``
counts the whole unit. Source: RocketMQ's ``ConsumeQueueExt``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lakelog.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


Longs: TypeAlias = "NDArray[np.int64]"
RawUnits: TypeAlias = "NDArray[Any]"

UNIT: Final = np.dtype(
    [("size", ">i2"), ("tags_code", ">i8"), ("store_time", ">i8"), ("bitmap_size", ">i2")]
)
UNIT_BYTES: Final = UNIT.itemsize
"""Length of a unit without a bitmap."""
BLANK_BYTES: Final = 4
"""Least number of bytes that stay free at the end of every file."""
END_MARKER: Final = b"\xff\xff"
"""Ends a file: -1 in place of the next unit's size."""

LOWEST: Final = -(1 << 63)
MAX_ADDRESS: Final = -(1 << 31) - 1
"""The largest address; all hashes of tags are larger."""
MAX_OFFSET: Final = MAX_ADDRESS - LOWEST
"""The largest end offset of a unit."""


def is_address(codes: Longs) -> NDArray[np.bool_]:
    """For each tags code (``int64``) of a consume queue, whether it is an address.

    >>> is_address(np.array([-(2**63), -(2**31) - 1, -(2**31), 7])).tolist()
    [True, True, False, False]
    """
    found: NDArray[np.bool_] = codes <= MAX_ADDRESS
    return found


def pack(tags_codes: Longs, store_times_ms: Longs) -> bytes:
    """Units without bitmaps, in file format."""
    raw = np.zeros(len(tags_codes), UNIT)
    raw["size"], raw["tags_code"], raw["store_time"] = UNIT_BYTES, tags_codes, store_times_ms
    return raw.tobytes()


def is_whole(raw: RawUnits) -> NDArray[np.bool_]:
    """For each head, whether its sizes are those of a unit; a negative bitmap size counts as 0."""
    bitmaps = np.maximum(raw["bitmap_size"].astype(np.int32), 0)
    whole: NDArray[np.bool_] = np.equal(raw["size"], bitmaps + UNIT_BYTES)
    return whole


def plain_run(data: bytes | memoryview) -> int:
    """The number of units without a bitmap at the start of ``data``."""
    raw = np.frombuffer(data, UNIT, len(data) // UNIT_BYTES)
    other = (raw["size"] != UNIT_BYTES) | (raw["bitmap_size"] > 0)
    return int(other.argmax()) if other.any() else len(raw)
