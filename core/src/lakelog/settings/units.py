"""Parses sizes, durations and ratios in readable form.

Exact or rejected: nothing is rounded, and an ambiguous unit (``64M``) is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from lakelog_interfaces.errors import SettingsError

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

_NUMBER: Final = r"\s*([0-9]+)(?:\.([0-9]+))?\s*"
SIZE_PATTERN: Final = rf"^{_NUMBER}([kKmMgGtT][iI]?[bB]|[bB])?\s*$"
DURATION_PATTERN: Final = rf"^{_NUMBER}(ms|s|m|min|h|d)?\s*$"
SHARE_PATTERN: Final = rf"^{_NUMBER}(%)?\s*$"

_SIZES: Final = "a whole number of bytes, or a size such as '512B', '10kB', '64MiB', '1GiB'"
_DURATIONS: Final = "a duration such as '500ms', '2s', '1m', '3h', '2d'"


def parse_size_bytes(value: object) -> int:
    """Parse a size: 1 kB is 1000 bytes, and 1 KiB is 1024.

    >>> parse_size_bytes("64 MiB"), parse_size_bytes("10kB"), parse_size_bytes("1024")
    (67108864, 10000, 1024)
    """
    return _scaled(value, SIZE_PATTERN, SIZE_BYTES, 1, _SIZES)


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
    unit = "milliseconds" if suffix == "_ms" else suffix[1:]
    accepted = f"a whole number of {unit}, or {_DURATIONS}"
    return _scaled(value, DURATION_PATTERN, DURATION_MS, UNIT_MS[suffix], accepted)


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
    return next((parse for suffix, (parse, _) in _UNITS.items() if key.endswith(suffix)), None)


def pattern_for(key: str) -> str | None:
    """The regular expression of strings that a field's parser accepts; ``None`` without a unit."""
    return next((words for suffix, (_, words) in _UNITS.items() if key.endswith(suffix)), None)


def _scaled(value: object, pattern: str, units: Mapping[str, int], base: int, accepted: str) -> int:
    """``value`` as a multiple of ``base``; a number without a unit already is that multiple."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    parts = re.match(pattern, value) if isinstance(value, str) else None
    if parts is None:
        raise SettingsError(f"{value!r} is not {accepted}")
    whole, fraction, unit = parts.groups(default="")
    factor = units[unit if units is DURATION_MS else unit.lower()] if unit else base
    scale: int = 10 ** len(fraction)
    count, rest = divmod(int(whole + fraction) * factor, base * scale)
    if rest:
        raise SettingsError(f"{value!r} is not {accepted} (the result is not a whole number)")
    return count


def _share(value: object, per_one: int) -> float:
    """A percentage from 0 to 100; a number without ``%`` is multiplied by ``per_one``."""
    parts = re.match(SHARE_PATTERN, value) if isinstance(value, str) else None
    if parts is not None:
        number, factor = float(f"{parts[1]}.{parts[2] or 0}"), 1 if parts[3] else per_one
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number, factor = value, per_one
    else:
        raise SettingsError(f"{value!r} is not a percentage such as '75%', nor a number")
    if not 0 <= number * factor <= 100:
        raise SettingsError(f"{value!r} is not between 0% and 100%")
    return float(number * factor)


_UNITS: Final[Mapping[str, tuple[Parser, str]]] = {
    "_bytes": (parse_size_bytes, SIZE_PATTERN),
    **{suffix: (partial(parse_duration, suffix=suffix), DURATION_PATTERN) for suffix in UNIT_MS},
    "_ratio": (parse_ratio, SHARE_PATTERN),
    "_percent": (parse_percent, SHARE_PATTERN),
}
