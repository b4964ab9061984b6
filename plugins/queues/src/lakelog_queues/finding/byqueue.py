"""Lists topics and queues, with the bounds of each queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import attrs

from lakelog.format.queue_offsets import Queue
from lakelog.format.units import Units
from lakelog.interfaces import QueueReader
from lakelog_format.arguments import whole
from lakelog_queues.arguments import queue_name, topic_name
from lakelog_queues.finding.results import QueueInfo


def java_order(text: str) -> bytes:
    """The sort key for Java's order of strings, which compares UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


@runtime_checkable
class ReachingQueues(Protocol):
    """Queues with the end of their last record."""

    def reached(self, queue: Queue) -> int:
        """Physical end offset of the last record that has a unit; 0 without one."""


@attrs.frozen
class QueueList:
    """Lists queues.

    :ivar minimum: returns the physical offset of the first byte still in the log
    :ivar reached: see :class:`ReachingQueues`; ``None`` if the last unit must be read
    """

    queues: QueueReader
    minimum: Callable[[], int]
    reached: Callable[[Queue], int] | None = None

    def topics(self) -> list[str]:
        """All topics that have a queue, in Java's string order."""
        return sorted({topic for topic, _ in self.queues.queues()}, key=java_order)

    def infos(self, topic: str | None = None) -> list[QueueInfo]:
        """All queues, or those of one topic, sorted by topic in Java's order, then by queue id."""
        if topic is not None:
            topic_name(topic)
        minimum = self.minimum()
        wanted = [each for each in self.queues.queues() if topic is None or each[0] == topic]
        wanted.sort(key=lambda queue: (java_order(queue[0]), queue[1]))
        infos = (self._info(queue, minimum) for queue in wanted)
        return [info for info in infos if info is not None]

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """The first existing queue offset and the next one to be written.

        ``None`` if there is no such queue.
        """
        return self.queues.bounds(queue_name(topic, queue_id), self.minimum())

    def units(self, topic: str, queue_id: int, first: int, count: int) -> Units:
        """At most ``count`` units from queue offset ``first``, as stored and without checks."""
        queue = queue_name(topic, queue_id)
        return self.queues.units(queue, whole("first", first), whole("count", count))

    def _info(self, queue: Queue, minimum: int) -> QueueInfo | None:
        bounds = self.queues.bounds(queue, minimum)
        if bounds is None:  # deleted meanwhile
            return None
        return QueueInfo(*queue, self.queues.kind(queue), *bounds, self._end(queue, bounds[1]))

    def _end(self, queue: Queue, end: int) -> int:
        """The physical end offset of the last unit's record; 0 if there is none."""
        if end <= 0:
            return 0
        if self.reached is not None:
            return self.reached(queue)
        units = self.queues.units(queue, end - 1, 1)
        return int(units.offsets[-1]) + int(units.sizes[-1]) if len(units) else 0
