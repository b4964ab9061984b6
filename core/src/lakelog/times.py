"""Parses times that users write, to ms since 1970, and prints such times.

One rule holds for all commands and options: a time without a zone is in the local zone, and "today"
starts at local midnight.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

import attrs

UNDERSTOOD: Final = (
    'ms since 1970 (1700000000000), seconds (@1700000000), "2026-11-21", "2026-11-21 10:15", '
    'ISO 8601 with a zone (2026-11-21T10:15:30+01:00), "10:15", "today", "yesterday 14:00", '
    '"now", "10m ago", "1h30m", "2 days ago"; without a zone it is local time'
)

HELP: Final = f"TIME is one of: {UNDERSTOOD}."
LOCAL: Final = "local time unless it has a zone"
"""For the help of an option that takes a time."""

LATEST_MS: Final = (1 << 63) - 1
"""The largest 64-bit integer, in which times are stored."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_DAYS: Final = {"today": 0, "yesterday": -1, "tomorrow": 1}

_UNIT_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}

_WORDS: Final = {
    "ms": ("millisecond", "milliseconds"),
    "s": ("sec", "secs", "second", "seconds"),
    "m": ("min", "mins", "minute", "minutes"),
    "h": ("hour", "hours"),
    "d": ("day", "days"),
    "w": ("week", "weeks"),
}

_NAMED_MS: Final = {
    name: _UNIT_MS[unit] for unit, words in _WORDS.items() for name in (unit, *words)
}

_MILLISECONDS: Final = re.compile(r"[+-]?\d{1,19}")

_SECONDS: Final = re.compile(r"@(\d{1,12})(?:\.(\d{1,3})\d*)?")

_PART: Final = re.compile(r"(\d{1,15})\s*([a-z]+)\s*")

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")

_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?")


def parse_time(text: str, now: datetime | None = None, zone: tzinfo | None = None) -> int:
    """Parse a time, to ms since 1970.

    :param now: reference of relative times, with its zone; by default the present
    :param zone: the local zone; ``None`` is the system's

    Raises ``ValueError`` that lists the accepted formats.

    >>> noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    >>> [parse_time(text, noon, UTC) for text in ("2h ago", "today 10:00", "10:00")]
    [1795255200000, 1795255200000, 1795255200000]
    """
    words = " ".join(text.lower().split())
    clock = _Clock(now or datetime.now(UTC), zone)
    try:
        found = next(at for parse in _PARSERS if (at := parse(words, clock)) is not None)
    except (ValueError, OverflowError, OSError):  # no such day, or outside the range of datetime
        raise ValueError(f"{text!r} is no time; understood are {UNDERSTOOD}") from None
    if abs(found) > LATEST_MS:
        raise ValueError(f"{text!r} is too far away: times are 64-bit ms since 1970")
    return found


def duration_ms(text: str) -> int | None:
    """Parse one or several numbers with units, to ms; ``None`` if the text is something else.

    >>> duration_ms("7d"), duration_ms("1h30m"), duration_ms("2 weeks"), duration_ms("7")
    (604800000, 5400000, 1209600000, None)
    """
    total, at, words = 0, 0, text.strip().lower()
    while at < len(words):
        found = _PART.match(words, at)
        if found is None or found[2] not in _NAMED_MS:
            return None
        total += int(found[1]) * _NAMED_MS[found[2]]
        at = found.end()
    return total if words else None


def iso(time_ms: int, zone: tzinfo | None = UTC, timespec: str = "seconds") -> str:
    """A time in ISO 8601; the number itself if it is out of the range of ``datetime``.

    :param zone: ``None`` is the local zone

    >>> iso(1_795_262_571_687), iso(1 << 60)
    ('2026-11-21T12:02:51+00:00', '1152921504606846976 ms')
    """
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone(zone).isoformat("T", timespec)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


@attrs.frozen
class _Clock:
    """The current time and the local zone."""

    now: datetime
    zone: tzinfo | None

    def local(self, day: date, at: time) -> datetime:
        """A local time; the system decides on daylight saving time."""
        naive = datetime.combine(day, at)
        return naive.astimezone() if self.zone is None else naive.replace(tzinfo=self.zone)

    def today(self) -> date:
        """The current local day."""
        return self.now.astimezone(self.zone).date()


def _number(words: str, _clock: _Clock) -> int | None:
    if _MILLISECONDS.fullmatch(words):
        return int(words)
    if found := _SECONDS.fullmatch(words):
        return int(found[1]) * 1_000 + int((found[2] or "0").ljust(3, "0"))
    return None


def _now(words: str, clock: _Clock) -> int | None:
    return _ms_of(clock.now) if words == "now" else None


def _ago(words: str, clock: _Clock) -> int | None:
    """A duration, counted back from now."""
    length = duration_ms(words.removesuffix(" ago"))
    return None if length is None else _ms_of(clock.now) - length


def _day(words: str, clock: _Clock) -> int | None:
    """A day, a time of day, or both."""
    name, _, rest = words.partition(" ")
    if _CLOCK.fullmatch(words):
        name, rest = "today", words
    day = _named_day(name, clock)
    if day is None or not (rest == "" or _CLOCK.fullmatch(rest)):
        return None
    return _ms_of(clock.local(day, _time_of_day(rest)))


def _named_day(name: str, clock: _Clock) -> date | None:
    if _DATE.fullmatch(name):
        return date.fromisoformat(name)
    return clock.today() + timedelta(days=_DAYS[name]) if name in _DAYS else None


def _time_of_day(text: str) -> time:
    """The time in ``text``, whose hour may have one digit; midnight if it is empty."""
    return time.fromisoformat(text if text[2:3] == ":" else f"0{text}") if text else time()


def _iso(words: str, clock: _Clock) -> int:
    found = datetime.fromisoformat(words.upper())
    return _ms_of(found if found.tzinfo else clock.local(found.date(), found.time()))


def _ms_of(when: datetime) -> int:
    return (when - _EPOCH) // timedelta(milliseconds=1)


_PARSERS: Final[tuple[Callable[[str, _Clock], int | None], ...]] = (
    _number,
    _now,
    _ago,
    _day,
    _iso,
)
"""Tried in this order; the last one raises if none matches."""
