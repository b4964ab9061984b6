"""Places in a queue that are named otherwise than by their offset."""

from __future__ import annotations

from datetime import datetime
from typing import Final, TypeAlias

from lakelog.consumers.queueaccess import QueueAccess
from lakelog.errors import SettingsError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

Place: TypeAlias = str | datetime
"""``earliest``, ``latest``, or the time at which a message was stored, with its time zone."""


def check_place(place: Place, argument: str = "start") -> Place:
    """The place, if it is one; raises ``SettingsError``."""
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise SettingsError(
                f"the time {place} has no time zone; add one, such as tzinfo=UTC", key=argument
            )
    elif place not in (EARLIEST, LATEST):
        raise SettingsError(
            f"{place!r} is no place in a queue; give 'earliest', 'latest' or a datetime",
            key=argument,
        )
    return place


def find(access: QueueAccess, topic: str, queue_id: int, place: Place) -> int:
    """The queue offset of a place; 0 in a queue that is not there yet."""
    bounds = access.bounds(topic, queue_id)
    if bounds is None:
        return 0
    if isinstance(place, datetime):
        time_ms = int(place.timestamp() * 1000)
        return within(access.offset_by_time(topic, queue_id, time_ms), bounds)
    return bounds[0] if place == EARLIEST else bounds[1]


def within(offset: int, bounds: tuple[int, int] | None) -> int:
    """The offset, or the end of the queue that is nearest to it."""
    return max(offset, 0) if bounds is None else max(bounds[0], min(offset, bounds[1]))
