"""Queue offsets by store time: a binary search that reads only the heads of the records it meets.

RocketMQ 5.3.3: ``ConsumeQueue.getOffsetInQueueByTime`` with its ``BoundaryType``. Store times rise
with the queue; where a clock was set back, the search finds one of the places that fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import attrs

from lakelog.interfaces import QueueReader
from lakelog.runtime.arguments import WrongValue, queue_name, time_ms
from lakelog_queues.finding.heads import HeadLog, Heads

Boundary: TypeAlias = Literal["lower", "upper"]


@attrs.frozen
class TimeSearch:
    """Finds queue offsets by time.

    :ivar minimum: gives the log's first byte
    """

    queues: QueueReader
    log: HeadLog
    minimum: Callable[[], int]

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = "lower"
    ) -> int:
        """The queue offset for a store time in ms since 1970.

        ``lower`` is the first message that is not older, and the queue's end if all are older.
        ``upper`` is the last message that is not younger, and the queue's first if all are
        younger. So between two times the upper one comes before the lower one, as in RocketMQ.
        0 where no such queue is. Messages that cannot be read are passed over.

        Raises ``TypeError`` for arguments of a wrong type, and ``ValueError`` for a time that can
        only be seconds, a boundary of another name, or a queue id below 0.
        """
        timestamp_ms = time_ms("timestamp_ms", timestamp_ms)
        if boundary not in ("lower", "upper"):
            raise WrongValue(f"boundary {boundary!r} is unknown; give 'lower' or 'upper'")
        bounds = self._bounds(topic, queue_id)
        if bounds is None:
            return 0
        first, end = bounds
        heads = Heads(self.queues, self.log, (topic, queue_id))
        if boundary == "lower":
            return _search(heads, first, end, lambda ms: ms >= timestamp_ms)[1]
        return max(first, _search(heads, first, end, lambda ms: ms > timestamp_ms)[0])

    def earliest_time(self, topic: str, queue_id: int) -> int | None:
        """Store time of the first message that can be read, in ms; ``None`` if there is none."""
        bounds = self._bounds(topic, queue_id)
        if bounds is None:
            return None
        found = Heads(self.queues, self.log, (topic, queue_id)).first_readable(*bounds)
        return None if found is None else found.time_ms

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        return self.queues.bounds(queue_name(topic, queue_id), self.minimum())


def _search(heads: Heads, low: int, high: int, is_behind: Callable[[int], bool]) -> tuple[int, int]:
    """The last message before a time, or ``low``; and the first behind it, or ``high``."""
    before, behind = low, high
    while low < high:
        heads.narrow(low, high)
        middle = (low + high) // 2
        found = heads.first_readable(middle, high)
        if found is None:
            high = middle
        elif is_behind(found.time_ms):
            behind, high = found.offset, middle
        else:
            before, low = found.offset, found.behind
    return before, behind
