"""Partition keys of tables: topic, day or hour of store time, and store.

A table with hidden partitions (Iceberg) derives days and hours from ``store_timestamp``. Others get
a column: ``day`` as a date, ``hour`` as text such as ``2026-11-21-10``, in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

from lakelog.errors import SettingsError

TOPIC: Final = "topic"
DAY: Final = "day"
HOUR: Final = "hour"
STORE: Final = "store"
KEYS: Final = (TOPIC, DAY, HOUR, STORE)
TIMES: Final = {DAY: 86_400_000, HOUR: 3_600_000}
"""Length of each time partition, in ms."""
DEFAULT: Final = (TOPIC, DAY)
_NONE: Final = "none"
_EPOCH: Final = date(1970, 1, 1).toordinal()
_LAST: Final = date.max.toordinal()
_HOURS: Final = 24


def parse(text: str) -> tuple[str, ...]:
    """Parse ``--partition``.

    >>> parse("topic, hour"), parse("none")
    (('topic', 'hour'), ())

    Raises :class:`~lakelog.errors.SettingsError`.
    """
    keys = tuple(each.strip() for each in text.split(","))
    if keys == (_NONE,):
        return ()
    if set(keys) - set(KEYS) or len(set(keys)) < len(keys):
        known = ", ".join(KEYS)
        raise SettingsError(
            f"{text!r} is not {_NONE}, nor some of {known}, each once", key="--partition"
        )
    return keys


def keys_text(keys: Sequence[str]) -> str:
    """The reverse of :func:`parse`."""
    return ",".join(keys) or _NONE


def as_text(key: str, value: int | str) -> str:
    """Format a value for a partition column.

    >>> as_text("topic", "orders"), as_text("day", 20_000), as_text("hour", 480_005)
    ('orders', '2024-10-04', '2024-10-04-05')
    """
    if key == DAY:
        return day_text(int(value))
    if key == HOUR:
        day, hour = divmod(int(value), _HOURS)
        return f"{day_text(day)}-{hour:02d}"
    return str(value)


def day_text(day: int) -> str:
    """Format a day as ISO 8601; days outside the calendar become its first or last day.

    >>> day_text(0), day_text(20_000), day_text(10**8)
    ('1970-01-01', '2024-10-04', '9999-12-31')
    """
    return date.fromordinal(min(max(_EPOCH + day, 1), _LAST)).isoformat()
