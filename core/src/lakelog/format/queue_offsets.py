"""The topic-queue table: which queue offset the next message of each queue takes.

Read and changed only inside the append lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from lakelog.format.properties import LIGHT_QUEUE_PREFIX

Queue: TypeAlias = tuple[str, int]
"""A topic and a queue id."""


class QueueOffsets:
    """Next queue offsets by queue; a queue that is not there starts at 0."""

    __slots__ = ("_light", "_next")

    def __init__(self, start: Mapping[Queue, int] | None = None) -> None:
        self._next: dict[Queue, int] = dict(start or {})
        self._light = sum(topic.startswith(LIGHT_QUEUE_PREFIX) for topic, _ in self._next)

    def next(self, queue: Queue) -> int:
        """The offset that the next message of ``queue`` takes."""
        return self._next.get(queue, 0)

    def advance(self, queue: Queue, count: int) -> None:
        """Count ``count`` messages more in ``queue``."""
        before = self._next.get(queue)
        if before is None:
            before = 0
            self._light += queue[0].startswith(LIGHT_QUEUE_PREFIX)
        self._next[queue] = before + count

    def new_light_queues(self, topics: Iterable[str]) -> int:
        """How many light queues there would be with those of ``topics`` added."""
        return self._light + sum((topic, 0) not in self._next for topic in topics)

    def snapshot(self) -> dict[Queue, int]:
        """A copy of the whole table."""
        return dict(self._next)
