"""Times of any year as ISO 8601 writes them; Python's own end with the year 9999."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS: Final = 400
_CYCLE_MS: Final = 146_097 * 86_400_000
"""After so many years, of so many days in all, the calendar repeats itself."""
_FOUR_DIGITS: Final = range(10_000)


def iso(ms: int) -> str:
    """``ms`` since 1970, in UTC; years beyond four digits with their sign.

    >>> iso(1_795_262_571_687), iso(-1), iso(253_402_300_800_000)
    ('2026-11-21T12:02:51.687Z', '1969-12-31T23:59:59.999Z', '+010000-01-01T00:00:00.000Z')
    """
    cycles, rest = divmod(ms, _CYCLE_MS)
    at = _EPOCH + timedelta(milliseconds=rest)
    number = at.year + _YEARS * cycles
    year = f"{number:04d}" if number in _FOUR_DIGITS else f"{number:+07d}"
    return f"{year}-{at:%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
