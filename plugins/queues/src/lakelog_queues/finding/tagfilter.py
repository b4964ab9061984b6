"""Parses a tag expression, and preselects units by their tags codes.

Source: RocketMQ 5.3.3, ``FilterAPI.buildSubscriptionData`` and ``ExpressionMessageFilter``.
Different tags can have the same hash, so the tags themselves must be compared afterwards, as
RocketMQ's clients do.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.arguments import WrongValue, whole, wrong_type
from lakelog.format.properties import JAVA_BLANK, SCHEDULE_TOPIC, TAG_SEPARATOR
from lakelog.lazy import np
from lakelog_queues.units.tags import java_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.format.queue_offsets import Longs

ALL: Final = "*"
_FIRST_NO_HASH: Final = -(1 << 31) - 1
"""Codes up to this one are addresses in a ``consumequeue_ext`` file, not hashes of tags."""


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

    def may_match(self, codes: Longs) -> NDArray[np.bool_]:
        """For each tags code (``int64``), whether a record with this code may match."""
        if not self.by_code:
            return np.ones(len(codes), np.bool_)
        good: NDArray[np.bool_] = codes <= _FIRST_NO_HASH
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
