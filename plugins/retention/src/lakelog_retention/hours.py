"""Parses hours of the day, ``"04"`` or ``"04;16"`` as in RocketMQ, and finds the current hour.

Whole hours count, from the first minute to the last. When the clocks change, an hour that is
skipped does not occur, and one that is repeated occurs twice.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Final

HOURS: Final = range(24)


def parse_hours(text: str) -> tuple[int, ...]:
    """The hours in ``text``, in its order; raises ``ValueError``.

    >>> parse_hours("04"), parse_hours("04; 16")
    ((4,), (4, 16))
    """
    return tuple(_hour(part.strip(), text) for part in text.split(";"))


def _hour(part: str, text: str) -> int:
    if not (part.isascii() and part.isdigit() and int(part) in HOURS):
        raise ValueError(f"expected hours from 00 to 23, such as '04' or '04;16', got {text!r}")
    return int(part)


def local_time(now_ms: int, time_zone: str | None) -> datetime:
    """The local time of day.

    :param now_ms: ms since 1970
    :param time_zone: a name such as ``Europe/Berlin``; ``None`` is the machine's
    """
    return datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(_zone(time_zone))


def check_zone(time_zone: str) -> None:
    """Raise ``ValueError`` if the machine has no ``time_zone``."""
    try:
        _zone(time_zone)
    except (KeyError, OSError, ValueError) as error:  # not found, a directory, a path
        raise ValueError(
            f"no time zone {time_zone!r} is known here; expected a name such as 'Europe/Berlin'"
        ) from error


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    from zoneinfo import ZoneInfo  # rarely needed

    return ZoneInfo(name)
