"""Parses sizes, durations and ratios in readable form.

Exact or rejected: nothing is rounded, and an ambiguous unit (``64M``) is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from lakelog.errors import SettingsError

Parser: TypeAlias = Callable[[object], "int | float"]
"""Converts a value to the number that a field holds; raises :class:`SettingsError`."""

SIZE_BYTES: Final[Mapping[str, int]] = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}
DURATION_MS: Final[Mapping[str, int]] = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
UNIT_MS: Final[Mapping[str, int]] = {
    "_ms": 1,
    "_seconds": 1_000,
    "_minutes": 60_000,
    "_hours": 3_600_000,
    "_days": 86_400_000,
}
"""Milliseconds per unit, by the suffix of a field's name."""

SIZE_PATTERN: Final = r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmMgGtT][iI]?[bB]|[bB])?\s*$"
DURATION_PATTERN: Final = r"^\s*[0-9]+(\.[0-9]+)?\s*(ms|s|m|min|h|d)?\s*$"
SHARE_PATTERN: Final = r"^\s*[0-9]+(\.[0-9]+)?\s*%?\s*$"

_SIZES: Final = "a whole number of bytes, or a size such as '512B', '10kB', '64MiB', '1GiB'"
_DURATIONS: Final = "a duration such as '500ms', '2s', '1m', '3h', '2d'"


def parse_size_bytes(value: object) -> int:
    """Parse a size: 1 kB is 1000 bytes, and 1 KiB is 1024.

    >>> parse_size_bytes("64 MiB"), parse_size_bytes("10kB"), parse_size_bytes("1024")
    (67108864, 10000, 1024)
    """
    return _scaled(value, SIZE_BYTES, 1, _SIZES)


def parse_duration_ms(value: object) -> int:
    """Parse a duration; a number without a unit is in milliseconds.

    >>> parse_duration_ms("2s"), parse_duration_ms("1.5m"), parse_duration_ms(500)
    (2000, 90000, 500)
    """
    return parse_duration(value, "_ms")


def parse_duration(value: object, suffix: str) -> int:
    """Parse a duration for a field whose name ends in ``suffix``, a key of :data:`UNIT_MS`.

    >>> parse_duration("3d", "_hours"), parse_duration(72, "_hours")
    (72, 72)
    """
    accepted = f"a whole number of {_UNIT_NAMES[suffix]}, or {_DURATIONS}"
    return _scaled(value, DURATION_MS, UNIT_MS[suffix], accepted)


def parse_ratio(value: object) -> float:
    """Parse a ratio: a number from 0 to 1, or a percentage.

    >>> parse_ratio("75%"), parse_ratio(0.75), parse_ratio("0.75")
    (0.75, 0.75, 0.75)
    """
    return _share(value, 100) / 100


def parse_percent(value: object) -> float:
    """Parse a percentage; a number without ``%`` is in percent.

    >>> parse_percent("75%"), parse_percent(75)
    (75.0, 75.0)
    """
    return _share(value, 1)


def parser_for(key: str) -> Parser | None:
    """The parser for a field, by the suffix of its name; ``None`` if it has no unit."""
    for suffix, parse in _PARSERS.items():
        if key.endswith(suffix):
            return parse
    return None


def pattern_for(key: str) -> str | None:
    """The regular expression of the strings accepted by :func:`parser_for` this key."""
    if key.endswith("_bytes"):
        return SIZE_PATTERN
    if key.endswith(("_ratio", "_percent")):
        return SHARE_PATTERN
    return DURATION_PATTERN if key.endswith(tuple(UNIT_MS)) else None


def _scaled(value: object, units: Mapping[str, int], base: int, accepted: str) -> int:
    """The count of ``base`` in ``value``; a bare number already is that count."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    parts = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    factor = _factor(parts[3], units, base) if parts else None
    if parts is None or factor is None:
        raise SettingsError(f"{value!r} is not {accepted}")
    return _exact(parts[1], parts[2] or "", factor, base, f"{value!r} is not {accepted}")


def _factor(unit: str, units: Mapping[str, int], base: int) -> int | None:
    """The factor of a unit; case matters for durations, not for sizes."""
    if not unit:
        return base
    return units.get(unit.lower() if units is SIZE_BYTES else unit)


def _exact(whole: str, fraction: str, factor: int, base: int, what: str) -> int:
    """``whole.fraction * factor / base``, which must be a whole number."""
    scale: int = 10 ** len(fraction)
    count, rest = divmod(int(whole + fraction) * factor, base * scale)
    if rest:
        raise SettingsError(f"{what} (the result is not a whole number)")
    return count


def _share(value: object, per_one: int) -> float:
    """A percentage from 0 to 100; a number without ``%`` is multiplied by ``per_one``."""
    number = _number(value)
    if number is None:
        raise SettingsError(f"{value!r} is not a percentage such as '75%', nor a number")
    is_percentage = isinstance(value, str) and value.rstrip().endswith("%")
    percent = number if is_percentage else number * per_one
    if not 0 <= percent <= 100:
        raise SettingsError(f"{value!r} is not between 0% and 100%")
    return float(percent)


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    parts = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    return float(parts[1]) if parts else None


_AMOUNT: Final = re.compile(r"\s*([0-9]+)(?:\.([0-9]+))?\s*([A-Za-z]*)\s*")
_PERCENT: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%?\s*")
_UNIT_NAMES: Final = {suffix: suffix[1:] for suffix in UNIT_MS} | {"_ms": "milliseconds"}


def _duration_parser(suffix: str) -> Parser:
    return lambda value: parse_duration(value, suffix)


_PARSERS: Final[Mapping[str, Parser]] = {
    "_bytes": parse_size_bytes,
    **{suffix: _duration_parser(suffix) for suffix in UNIT_MS},
    "_ratio": parse_ratio,
    "_percent": parse_percent,
}
