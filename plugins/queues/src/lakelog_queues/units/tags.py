"""The tags code of each record of a batch.

If the property repeats, its last value that is not empty counts, as in RocketMQ.

Java's ``String.hashCode``.

The delivery time of delayed messages, which their units hold in place of the tags code.

Source: RocketMQ's ``CommitLog.checkMessageAndReturnSize``, and the default of its setting
``messageDelayLevel``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from lakelog.format.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from lakelog.format.record_batch import RecordBatch
from lakelog.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def java_hash(text: str) -> int:
    """The signed 32-bit hash over the UTF-16 units of ``text``.

    >>> java_hash("TagA"), java_hash("")
    (2598919, 0)
    """
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@lru_cache(maxsize=4096)
def hash_of_utf8(raw: bytes) -> int:
    """The hash of the string that Java decodes from ``raw``; invalid UTF-8 counts as U+FFFD."""
    return java_hash(raw.decode(errors="replace"))


_TAGS: Final = b"TAGS"


def tags_codes(batch: RecordBatch) -> NDArray[np.int64]:
    """``int64``: the Java hash of the property ``TAGS`` of each record; 0 if it is missing."""
    return np.array([hash_of_utf8(_tags(each)) for each in batch.property_strings], np.int64)


def _tags(properties: bytes) -> bytes:
    found = b""
    for each in properties.split(PROPERTY_SEPARATOR):
        name, _, value = each.partition(NAME_VALUE_SEPARATOR)
        if name == _TAGS and value:
            found = value
    return found


_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000}
DELAYS_MS: Final = tuple(int(text[:-1]) * _UNIT_MS[text[-1]] for text in _LEVELS.split())


def delivery_time_ms(level: str | None, store_time_ms: int) -> int | None:
    """The delivery time of a message with this ``DELAY``, in ms since 1970; ``None`` without one.

    >>> delivery_time_ms("2", 1_000), delivery_time_ms("99", 0), delivery_time_ms("0", 0)
    (6000, 7200000, None)
    """
    try:
        number = int(level or "0")
    except ValueError:
        return None
    return store_time_ms + DELAYS_MS[min(number, len(DELAYS_MS)) - 1] if number > 0 else None
