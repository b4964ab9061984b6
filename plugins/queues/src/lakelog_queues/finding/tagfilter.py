"""Which messages a subscription to tags wants: first by the tags code, then by the tags.

RocketMQ: ``FilterAPI.buildSubscriptionData`` and ``ExpressionMessageFilter``, whose clients compare
the tags themselves, since different tags can have one hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from lakelog.format.java_hash import java_hash
from lakelog.format.properties import JAVA_BLANK, SCHEDULE_TOPIC, TAG_SEPARATOR
from lakelog.runtime.arguments import WrongValue, wrong_type

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lakelog.format.units import Longs

ALL: Final = "*"
_FIRST_NO_HASH: Final = -(1 << 31) - 1
"""Codes up to this one are places in a ``consumequeue_ext`` file, and say nothing of the tags."""


@attrs.frozen
class TagFilter:
    """:ivar tags: one of them is wanted."""

    tags: frozenset[str]
    hashes: tuple[int, ...]
    by_code: bool

    def may_match(self, codes: Longs) -> NDArray[np.bool_]:
        """For each tags code, whether a record with it may be wanted."""
        import numpy as np

        if not self.by_code:
            return np.ones(len(codes), np.bool_)
        good: NDArray[np.bool_] = codes <= _FIRST_NO_HASH
        for each in self.hashes:
            good |= codes.astype(np.int32) == each
        return good


def tag_filter(topic: str, expression: str | None) -> TagFilter | None:
    """The filter for ``"TagA || TagB"``; ``None`` where everything is wanted.

    The tags code of a delayed message is its time of delivery: in ``SCHEDULE_TOPIC_XXXX`` the tags
    alone decide, where RocketMQ compares hashes with the lower half of that time.

    Raises ``TypeError`` for what is no text, and ``ValueError`` for an expression without a tag.
    """
    if expression is not None and not isinstance(expression, str):
        raise wrong_type("tags", expression, "a str such as 'TagA || TagB', or None for all")
    if expression is None or expression in ("", ALL):
        return None
    tags = [tag for part in expression.split(TAG_SEPARATOR) if (tag := part.strip(JAVA_BLANK))]
    if not tags:
        raise WrongValue(f"tags {expression!r} name no tag; give one like 'TagA || TagB', or '*'")
    hashes = tuple({java_hash(tag) for tag in tags})
    return TagFilter(frozenset(tags), hashes, topic != SCHEDULE_TOPIC)
