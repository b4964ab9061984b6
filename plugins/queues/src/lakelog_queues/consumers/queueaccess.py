"""The interface through which a consumer reads a store's queues and waits for messages.

Symbolic positions in a queue: ``earliest``, ``latest``, or a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeAlias

import attrs

from lakelog.errors import SettingsError
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


EARLIEST: Final = "earliest"
LATEST: Final = "latest"

StartPosition: TypeAlias = str | datetime
"""``earliest``, ``latest``, or a store time with its time zone."""


def check_start_position(position: StartPosition, argument: str = "start") -> StartPosition:
    """The position, if it is valid; raises ``SettingsError``."""
    if isinstance(position, datetime):
        if position.tzinfo is None:
            raise SettingsError(
                f"the time {position} has no time zone; add one, such as tzinfo=UTC", key=argument
            )
    elif position not in (EARLIEST, LATEST):
        raise SettingsError(
            f"{position!r} is not a place in a queue; give 'earliest', 'latest' or a datetime",
            key=argument,
        )
    return position


def find(access: QueueAccess, topic: str, queue_id: int, position: StartPosition) -> int:
    """The queue offset of a start position; 0 if the queue does not exist yet.

    For a time it is that of the first message stored then or later, or else the end of the queue.
    """
    bounds = access.bounds(topic, queue_id)
    if bounds is None:
        return 0
    if isinstance(position, datetime):
        time_ms = int(position.timestamp() * 1000)
        return within(access.offset_by_time(topic, queue_id, time_ms), bounds)
    return bounds[0] if position == EARLIEST else bounds[1]


def within(offset: int, bounds: tuple[int, int] | None) -> int:
    """``offset``, limited to the bounds of its queue."""
    return max(offset, 0) if bounds is None else max(bounds[0], min(offset, bounds[1]))
