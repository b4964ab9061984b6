"""Tags: the tags code of each record of a batch, and the filter for a tag expression.

If the property repeats, its last value that is not empty counts, as in RocketMQ. The code is Java's
``String.hashCode``. Units of delayed messages hold the delivery time in its place. Different tags
can have the same hash, so the tags themselves must be compared afterwards, as RocketMQ's
clients do.

Source: RocketMQ 5.3.3, ``CommitLog.checkMessageAndReturnSize`` and the default of its setting
``messageDelayLevel``; ``FilterAPI.buildSubscriptionData`` and ``ExpressionMessageFilter``.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final

import attrs

from lakelog.arguments import WrongValue, whole, wrong_type
from lakelog.format.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from lakelog.format.properties import JAVA_BLANK, SCHEDULE_TOPIC, TAG_SEPARATOR
from lakelog.format.queue_offsets import Flags, Longs
from lakelog.format.record_batch import RecordBatch
from lakelog.lazy import np

ALL: Final = "*"
_TAGS: Final = b"TAGS"
MAX_ADDRESS: Final = -(1 << 31) - 1
"""Codes up to this one are addresses in a ``consumequeue_ext`` file; all hashes are larger."""
_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000}
DELAYS_MS: Final = tuple(int(text[:-1]) * _UNIT_MS[text[-1]] for text in _LEVELS.split())


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


def tags_codes(batch: RecordBatch) -> Longs:
    """``int64``: the Java hash of the property ``TAGS`` of each record; 0 if it is missing."""
    return np.array([hash_of_utf8(_tags(each)) for each in batch.property_strings], np.int64)


def _tags(properties: bytes) -> bytes:
    found = b""
    for each in properties.split(PROPERTY_SEPARATOR):
        name, _, value = each.partition(NAME_VALUE_SEPARATOR)
        if name == _TAGS and value:
            found = value
    return found


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


def is_address(codes: Longs) -> Flags:
    """For each tags code (``int64``) of a consume queue, whether it is an address.

    >>> is_address(np.array([-(2**63), -(2**31) - 1, -(2**31), 7])).tolist()
    [True, True, False, False]
    """
    found: Flags = codes <= MAX_ADDRESS
    return found


@attrs.frozen
class TagFilter:
    """A parsed tag expression.

    :ivar tags: a message matches if it has one of them
    :ivar hashes: their Java hashes
    :ivar by_code: whether tags codes are hashes; in the delay topic they are times
    """

    tags: frozenset[str]
    hashes: tuple[int, ...]
    by_code: bool

    def may_match(self, codes: Longs) -> Flags:
        """For each tags code (``int64``), whether a record with this code may match."""
        if not self.by_code:
            return np.ones(len(codes), np.bool_)
        good = is_address(codes)
        for each in self.hashes:
            good |= codes.astype(np.int32) == each
        return good


def tag_filter(topic: str, expression: str | None) -> TagFilter | None:
    """The filter for ``"TagA || TagB"``; ``None`` if the expression matches all messages.

    In ``SCHEDULE_TOPIC_XXXX`` the tags code of a message is its delivery time, so only the tags
    themselves are compared. RocketMQ compares hashes with the lower half of that time.

    Raises ``TypeError`` unless it is a string, and ``ValueError`` for an expression without a tag.
    """
    if expression is not None and not isinstance(expression, str):
        raise wrong_type("tags", expression, "a str such as 'TagA || TagB', or None for all")
    if expression is None or expression in ("", ALL):
        return None
    tags = [tag for part in expression.split(TAG_SEPARATOR) if (tag := part.strip(JAVA_BLANK))]
    if not tags:
        raise WrongValue(f"tags {expression!r} contain no tag; give tags such as 'TagA || TagB'")
    hashes = tuple({java_hash(tag) for tag in tags})
    return TagFilter(frozenset(tags), hashes, topic != SCHEDULE_TOPIC)


def code_filter(topic: str, codes: Collection[int]) -> TagFilter:
    """The filter for records whose tags code is one of ``codes``; it has no tags to compare.

    Raises ``TypeError`` and ``ValueError`` unless each is a Java hash, a signed integer of 32 bits.
    """
    if isinstance(codes, str | bytes) or not isinstance(codes, Collection):
        raise wrong_type("tags_codes", codes, "a set of Java hashes of tags, or None for all")
    hashes = tuple({whole("tags_codes", each, None) for each in codes})
    if any(not -(1 << 31) <= each < 1 << 31 for each in hashes):
        raise WrongValue(f"tags_codes has {max(hashes, key=abs)}; a Java hash has 32 bits")
    return TagFilter(frozenset(), hashes, topic != SCHEDULE_TOPIC)
