"""What a consumer needs of a store: to read queues, to know their ends, to wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from lakelog.reading.results import GetResult


class Get(Protocol):
    """Reads one queue, as ``Store.get``."""

    def __call__(
        self, topic: str, queue_id: int, offset: int, max_messages: int, *, tags: str | None
    ) -> GetResult:
        """At most ``max_messages`` messages from queue offset ``offset`` on."""


class Waits(Protocol):
    """Lets a reader sleep until something new can be read."""

    @property
    def version(self) -> int:
        """Grows whenever something new can be read; to be looked at before looking for it."""

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""

    def wait(self, seen: int, timeout_s: float) -> int:
        """Sleep until ``version`` is not ``seen`` any more, or for so long; the version then."""


@attrs.frozen
class QueueAccess:
    """The queues of one store.

    :ivar get: reads one queue
    :ivar queues: the queue ids of a topic
    :ivar bounds: first and next queue offset of a topic and queue id; ``None`` if it is not there
    :ivar offset_by_time: of a topic, a queue id and a time in ms: the first queue offset whose
        message was stored then or later
    :ivar arrivals: what to wait for
    """

    get: Get
    queues: Callable[[str], Sequence[int]]
    bounds: Callable[[str, int], tuple[int, int] | None]
    offset_by_time: Callable[[str, int, int], int]
    arrivals: Waits
