"""Fetches from several queues in turn, and tracks the position in each.

Every queue gets its share of a fetch, and each fetch starts with another queue. So a busy queue
cannot starve the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import attrs

from lakelog.message import StoredMessage
from lakelog_queues.consumers.queueaccess import QueueAccess
from lakelog_queues.finding.results import GetResult, GetStatus

_log = logging.getLogger("lakelog")
_CORRECTED = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY)


@attrs.define
class Fetched:
    """A message, its queue, and the next offset to read there.

    The queue cannot be derived from the message: a light queue holds records of other topics.
    """

    message: StoredMessage
    queue_id: int
    next_offset: int


class Fetching:
    """The read positions in the queues of a topic.

    :ivar positions: next queue offset to fetch, by queue id
    """

    def __init__(self, access: QueueAccess, topic: str, tags: str | None) -> None:
        self.positions: dict[int, int] = {}
        self._access = access
        self._topic = topic
        self._tags = tags
        self._first = 0

    def fetch(self, max_messages: int) -> list[Fetched]:
        """Fetch available messages; empty only if every queue is at its end."""
        while True:
            before = dict(self.positions)
            found = self._rounds(max_messages)
            if found or self.positions == before:
                return found

    def _rounds(self, max_messages: int) -> list[Fetched]:
        """Give each queue its share, then distribute the remainder to queues with more messages."""
        found: list[Fetched] = []
        queues = self._in_turn()
        while queues and len(found) < max_messages:
            more = []
            for place, queue_id in enumerate(queues):
                share = _share(max_messages - len(found), len(queues) - place)
                if share:
                    got = self._fetch(queue_id, share)
                    found += got
                    more += [queue_id] if len(got) >= share else []
            queues = more
        return found

    def _in_turn(self) -> list[int]:
        """The queues, starting with another one each time."""
        queues = sorted(self.positions)
        if not queues:
            return []
        first = self._first % len(queues)
        self._first = first + 1
        return queues[first:] + queues[:first]

    def _fetch(self, queue_id: int, count: int) -> list[Fetched]:
        """Read one queue, and continue at the offset in the result, as a RocketMQ client does."""
        offset = self.positions[queue_id]
        result = self._access.get(self._topic, queue_id, offset, count, tags=self._tags)
        if result.status in _CORRECTED:
            _log.warning(
                "queue %d of topic %s holds offsets %d to %d, not %d; reading continues at %d",
                queue_id,
                self._topic,
                result.min_offset,
                result.max_offset,
                offset,
                result.next_offset,
            )
        self.positions[queue_id] = result.next_offset
        return self._placed(result, queue_id, offset)

    def _placed(self, result: GetResult, queue_id: int, offset: int) -> list[Fetched]:
        """Add to each message the queue offset after it.

        A message of a light queue has the queue offset of its own queue, so the offset after it is
        not known. Such messages keep the start of the fetch; only the last one advances.
        """
        if not result.messages:
            return []
        *others, last = result.messages
        found = [
            Fetched(each, queue_id, each.queue_offset + 1 if each.topic == self._topic else offset)
            for each in others
        ]
        return [*found, Fetched(last, queue_id, result.next_offset)]

    def add(self, queue_ids: Sequence[int], place_of: Callable[[int], int]) -> None:
        """Add new queues, at the positions returned by ``place_of``."""
        for queue_id in queue_ids:
            if queue_id not in self.positions:
                self.positions[queue_id] = place_of(queue_id)


def _share(left: int, queues: int) -> int:
    """The share of the next of ``queues`` queues; at least 1 while anything is left."""
    return -(-left // queues)
