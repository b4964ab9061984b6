"""Lags of consumer groups behind the queues that they consume."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from lakelog import QueueInfo, Store


@attrs.frozen
class GroupLag:
    """A consumer group in one topic; :ivar behind: messages that it has not acknowledged."""

    group: str
    topic: str
    behind: int


def group_lags(store: Store, queues: Sequence[QueueInfo] | None = None) -> list[GroupLag]:
    """All groups by topic, those that are furthest behind first.

    :param queues: all queues of the store, if they are known
    """
    found = store.queues() if queues is None else queues
    ends = {(each.topic, each.queue_id): each.max_offset for each in found}
    lags = [
        GroupLag(
            group,
            topic,
            sum(
                max(0, ends.get((topic, queue_id), 0) - offset)
                for queue_id, offset in offsets.items()
            ),
        )
        for group, topics in store.groups().items()
        for topic, offsets in topics.items()
    ]
    return sorted(lags, key=lambda each: (-each.behind, each.group, each.topic))
