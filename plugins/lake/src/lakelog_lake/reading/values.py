"""Values of options: words, switches, sizes, times; each error names the option."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final

from lakelog.errors import SettingsError

SOURCE: Final = "the options of the data source"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SIZE: Final = re.compile(r"(\d{1,18})\s*(|[kmgt])(|b|ib)", re.IGNORECASE)
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DIGITS: Final = re.compile(r"\d{1,18}")


def refused(key: str, message: str) -> SettingsError:
    """The error for an invalid value of an option."""
    return SettingsError(message, key=key, source=SOURCE)


def nearest(given: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known one, or all."""
    names = list(known)
    found = get_close_matches(given, names, 1)
    return f"did you mean {found[0]!r}?" if found else f"known are {', '.join(names)}"


def word(key: str, text: str, known: Sequence[str]) -> str:
    """Parse one of some words."""
    found = text.strip().lower()
    if found not in known:
        *first, last = known
        words = f"neither {', '.join(first)} nor {last}"
        close = get_close_matches(found, known, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise refused(key, f"{text!r} is {words}{hint}")
    return found


def switch(key: str, text: str) -> bool:
    """Parse ``true`` or ``false``."""
    return word(key, text, ("true", "false")) == "true"


def names(key: str, text: str) -> frozenset[str]:
    """Parse comma-separated names."""
    found = frozenset(each.strip() for each in text.split(",") if each.strip())
    if not found:
        raise refused(key, "give at least one name, or leave the option out")
    return found


def size(key: str, text: str) -> int:
    """Parse a number of bytes, such as ``134217728``, ``128m`` or ``128MiB``."""
    found = _SIZE.fullmatch(text.strip())
    value = int(found[1]) << _SHIFTS[found[2].lower()] if found else 0
    if value < 1:
        raise refused(key, f"{text!r} is not a size above 0; write bytes, or 128m or 1GiB")
    return value


def count(key: str, text: str) -> int:
    """Parse a whole number above 0."""
    if not _DIGITS.fullmatch(text.strip()) or int(text) < 1:
        raise refused(key, f"{text!r} is not a whole number above 0")
    return int(text)


def mapping(key: str, text: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise refused(key, f"{text!r} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise refused(key, f"{text!r} is not a JSON object")
    return found


def time_ms(key: str, text: str) -> int:
    """Parse a time to ms since 1970: such a number, or ISO 8601, by default in UTC."""
    if _DIGITS.fullmatch(text.strip()):
        return int(text)
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise refused(
            key,
            f"{text!r} is not a time; write ms since 1970 or ISO 8601, as 2026-11-21T10:15:00Z",
        ) from None
    return ms_of(found)


def ms_of(when: datetime) -> int:
    """Convert ``when`` to ms since 1970, rounded down; by default in UTC."""
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)
