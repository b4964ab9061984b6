"""Symbolic positions in a queue: ``earliest``, ``latest``, or a time."""

from __future__ import annotations

from datetime import datetime
from typing import Final, TypeAlias

from lakelog.errors import SettingsError
from lakelog_queues.consumers.queueaccess import QueueAccess

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

Place: TypeAlias = str | datetime
"""``earliest``, ``latest``, or a store time with its time zone."""


def check_place(place: Place, argument: str = "start") -> Place:
    """The place, if it is valid; raises ``SettingsError``."""
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise SettingsError(
                f"the time {place} has no time zone; add one, such as tzinfo=UTC", key=argument
            )
    elif place not in (EARLIEST, LATEST):
        raise SettingsError(
            f"{place!r} is not a place in a queue; give 'earliest', 'latest' or a datetime",
            key=argument,
        )
    return place


def find(access: QueueAccess, topic: str, queue_id: int, place: Place) -> int:
    """The queue offset of a place; 0 if the queue does not exist yet.

    For a time it is that of the first message stored then or later, or else the end of the queue.
    """
    bounds = access.bounds(topic, queue_id)
    if bounds is None:
        return 0
    if isinstance(place, datetime):
        time_ms = int(place.timestamp() * 1000)
        return within(access.offset_by_time(topic, queue_id, time_ms), bounds)
    return bounds[0] if place == EARLIEST else bounds[1]


def within(offset: int, bounds: tuple[int, int] | None) -> int:
    """``offset``, limited to the bounds of its queue."""
    return max(offset, 0) if bounds is None else max(bounds[0], min(offset, bounds[1]))
