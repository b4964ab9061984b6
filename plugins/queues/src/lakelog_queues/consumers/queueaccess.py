"""The interface through which a consumer reads a store's queues and waits for messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from lakelog_queues.finding.results import GetResult


class Get(Protocol):
    """Reads one queue, like ``Store.get``."""

    def __call__(
        self, topic: str, queue_id: int, offset: int, max_messages: int, *, tags: str | None
    ) -> GetResult:
        """At most ``max_messages`` messages from queue offset ``offset`` on."""


class ArrivalWait(Protocol):
    """Lets a reader wait for new messages."""

    @property
    def version(self) -> int:
        """A counter that grows with new messages; read it before looking for messages."""

    @property
    def closed(self) -> bool:
        """Whether no more messages will arrive."""

    def wait(self, seen: int, timeout_s: float) -> int:
        """Wait until ``version`` differs from ``seen``, or for the timeout; returns the version."""


@attrs.frozen
class QueueAccess:
    """The queues of one store.

    :ivar get: reads one queue
    :ivar queues: returns the queue ids of a topic
    :ivar bounds: returns first and next queue offset of a topic and queue id; ``None`` if missing
    :ivar offset_by_time: returns, for a topic, a queue id and a time in ms, the first queue offset
        whose message was stored then or later
    :ivar arrivals: lets a reader wait for new messages
    """

    get: Get
    queues: Callable[[str], Sequence[int]]
    bounds: Callable[[str, int], tuple[int, int] | None]
    offset_by_time: Callable[[str, int, int], int]
    arrivals: ArrivalWait
