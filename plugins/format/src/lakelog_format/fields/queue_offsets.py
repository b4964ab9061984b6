"""The topic-queue table: the next queue offset of each queue.

Read and changed only inside the append lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from lakelog_format.fields.properties import LIGHT_QUEUE_PREFIX

Queue: TypeAlias = tuple[str, int]
"""A topic and a queue id."""


class QueueOffsets:
    """Next queue offset by queue; a missing queue starts at 0."""

    __slots__ = ("_light", "_next")

    def __init__(self, start: Mapping[Queue, int] | None = None) -> None:
        self._next: dict[Queue, int] = dict(start or {})
        self._light = sum(topic.startswith(LIGHT_QUEUE_PREFIX) for topic, _ in self._next)

    def next(self, queue: Queue) -> int:
        """The offset for the next message of ``queue``."""
        return self._next.get(queue, 0)

    def advance(self, queue: Queue, count: int) -> None:
        """Advance ``queue`` by ``count`` messages."""
        before = self._next.get(queue)
        if before is None:
            before = 0
            self._light += queue[0].startswith(LIGHT_QUEUE_PREFIX)
        self._next[queue] = before + count

    def new_light_queues(self, topics: Iterable[str]) -> int:
        """The number of light queues if ``topics`` were added."""
        return self._light + sum((topic, 0) not in self._next for topic in topics)

    def snapshot(self) -> dict[Queue, int]:
        """A copy of the whole table."""
        return dict(self._next)
