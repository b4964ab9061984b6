"""Symbolic positions in a queue: ``earliest``, ``latest``, or a time."""

from __future__ import annotations

from datetime import datetime
from typing import Final, TypeAlias

from lakelog.errors import SettingsError
from lakelog_queues.consumers.queueaccess import QueueAccess

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
