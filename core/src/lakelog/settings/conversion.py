"""Converts values to the types that a settings class declares; strict, without coercion.

Sizes, durations and ratios may have a readable form. It is exact or rejected: nothing is rounded,
and an ambiguous unit (``64M``) is not guessed.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from enum import Enum
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import attrs

from lakelog.arguments import LONGEST_MS, WrongValue, encodable, shown
from lakelog.errors import SettingsError
from lakelog.settings.effective import Given, dotted, keys_of, required

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

_STRICT: Final[Mapping[Any, tuple[Any, str]]] = {
    int: (int, "a whole number"),
    float: (int | float, "a number"),
    str: (str, "a string"),
    bool: (bool, "true or false"),
    Path: (str | Path, "a path"),
}
"""For each type: the accepted input types, and its name for errors."""
_LISTS: Final = (list, tuple, set, frozenset)
_type_hints: Final = lru_cache(maxsize=64)(get_type_hints)


# --- type hints ---


def hints_of(cls: type[Any]) -> dict[str, Any]:
    """The types of a settings class's fields, by field name.

    Raises :class:`~lakelog.errors.SettingsError` if they cannot be resolved.
    """
    try:
        return _type_hints(cls)  # type: ignore[arg-type]  # classes are hashable; mypy doubts it of type[Any]
    except NameError as error:
        what = f"the types of its settings cannot be resolved ({error})"
        hint = "import them at run time, not only for type checkers"
        raise SettingsError(f"{cls.__module__}.{cls.__qualname__}: {what}; {hint}") from error


def without_none(hint: Any) -> tuple[Any, bool]:
    """A hint without its ``None``, and whether it had one."""
    if not is_union(hint):
        return hint, False
    rest = tuple(arg for arg in get_args(hint) if arg is not types.NoneType)
    return Union[rest], len(rest) < len(get_args(hint))  # noqa: UP007  # the types are known only at run time


def is_union(hint: Any) -> bool:
    """Whether ``hint`` is ``A | B``."""
    return get_origin(hint) in (Union, types.UnionType)


def items_of(hint: Any) -> bool:
    """Whether values of ``hint`` are lists of some kind, not strings or tables."""
    kind = get_origin(hint) or hint
    if not isinstance(kind, type) or issubclass(kind, str | bytes | Mapping):
        return False
    return issubclass(kind, Collection)


# --- single values ---


def convert(value: object, hint: Any, key: str) -> object:
    """Convert ``value`` to the type ``hint``; raises ``ValueError`` or ``TypeError``.

    :param key: the field's name, whose suffix determines its unit
    """
    bare, optional = without_none(hint)
    if optional and (value is None or value == ""):
        return None
    parse = parser_for(key) if bare in (int, float) else None
    if parse:
        number = parse(value)
        if key.endswith("_ms") and number > LONGEST_MS:  # most are passed to a wait
            raise ValueError(f"{value!r} is too long: at most 100 years, {LONGEST_MS} ms")
        value = int(number) if bare is int and int(number) == number else number
    return _typed(value, bare)


def _typed(value: Any, hint: Any) -> Any:
    kind, args = get_origin(hint) or hint, get_args(hint)
    if kind is Literal:
        if any(value == word and type(value) is type(word) for word in args):
            return value
        raise _unfit(value, f"one of {', '.join(map(str, args))}")
    if is_union(hint):
        return _one_of(value, args)
    if items_of(hint):
        return _list(value, kind, args)
    if kind in _STRICT:
        accepted, name = _STRICT[kind]
        if isinstance(value, accepted) and (kind is bool or not isinstance(value, bool)):
            _check_size(value)
            return kind(value)
        raise _unfit(value, name)
    return _instance(value, object if kind is Any else kind, args)


def _check_size(value: Any) -> None:
    """Refuse what no file and no shared page can hold."""
    if isinstance(value, str | Path):
        encodable("the value", value)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise WrongValue(f"{shown(value)} does not fit into 64 bits")


def _instance(value: Any, kind: Any, args: tuple[Any, ...]) -> Any:
    if isinstance(kind, type):
        if issubclass(kind, Enum):
            return kind(value)
        if issubclass(kind, Mapping) and isinstance(value, Mapping):
            names, values = args or (Any, Any)
            return {_typed(name, names): _typed(each, values) for name, each in value.items()}
        if attrs.has(kind) and isinstance(value, Mapping):
            return _table(value, kind)
        if isinstance(value, kind):
            return value
    raise _unfit(value, getattr(kind, "__name__", str(kind)))


def _one_of(value: object, hints: tuple[Any, ...]) -> Any:
    """Convert to the first of ``hints`` that fits; the type of ``value`` itself is tried first."""
    for hint in sorted(hints, key=lambda each: each is not type(value)):
        with suppress(ValueError, TypeError):
            return _typed(value, hint)
    raise _unfit(value, " or ".join(map(str, hints)))


def _list(value: Any, kind: type[Any], hints: tuple[Any, ...]) -> Any:
    if not isinstance(value, _LISTS):
        raise _unfit(value, "a list")
    if kind is not tuple or not hints or hints[-1] is Ellipsis:
        hints = (*hints, Any)[:1] * len(value)
    if len(hints) != len(value):
        raise _unfit(value, f"a list of {len(hints)}")
    return (kind if kind in _LISTS else tuple)(map(_typed, value, hints))


def _table(value: Mapping[str, Any], cls: type[Any]) -> Any:
    hints, fields = hints_of(cls), keys_of(cls)
    unknown = ", ".join(str(key) for key in value if key not in fields)
    if unknown:
        raise ValueError(f"there is no such key: {unknown}; the keys are {', '.join(fields)}")
    return cls(**{key: convert(each, hints[fields[key].name], key) for key, each in value.items()})


def _unfit(value: object, expected: str) -> TypeError:
    return TypeError(f"expected {expected}, got {shown(value)} ({type(value).__name__})")


def from_text(text: str, hint: Any) -> object:
    """Convert text of a source without types to the value that TOML would give.

    Unreadable text is returned unchanged, so that :func:`convert` rejects it with a reason.
    """
    bare, optional = without_none(hint)
    if optional and not text:
        return None
    if bare is bool:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if items_of(bare):
        return tuple(filter(None, map(str.strip, text.split(","))))
    try:
        return bare(text) if bare in (int, float) else text
    except ValueError:
        return text


# --- sections ---


def build(section: str, cls: type[Any], givens: Mapping[str, Given]) -> Any:
    """An instance of ``cls`` with the values ``givens`` by key, and defaults for the rest.

    Raises :class:`~lakelog.errors.SettingsError` for invalid or missing values.
    """
    if not givens:
        return cls()
    hints, fields = hints_of(cls), keys_of(cls)
    values = {key: _value(given, hints[fields[key].name]) for key, given in givens.items()}
    missing = ", ".join(dotted(section, key) for key in required(cls) if key not in values)
    if missing:
        raise SettingsError(f"{missing} must be set too: there is no default")
    try:
        return cls(**values)
    except (ValueError, TypeError) as error:
        key = _key_at_fault(error, cls, values)
        if key is not None:
            given = givens[key]
            raise SettingsError(_words(error), key=given.dotted, source=given.origin) from error
        sources = ", ".join(sorted({given.origin for given in givens.values()}))
        raise SettingsError(_words(error), source=sources) from error


def _value(given: Given, hint: Any) -> object:
    try:
        value = given.value
        if given.is_text and isinstance(value, str):
            value = from_text(value, hint)
        return convert(value, hint, given.key)
    except (ValueError, TypeError) as error:
        raise SettingsError(_words(error), key=given.dotted, source=given.origin) from error


def _key_at_fault(error: Exception, cls: type[Any], values: Mapping[str, object]) -> str | None:
    """The key with the wrong value; ``None`` if it cannot be determined.

    It is the key named by the error, or else one without which the class accepts the other values.
    """
    for word in re.findall(r"\w+", _words(error)):
        if word in values:
            return str(word)
    for key in values:
        with suppress(ValueError, TypeError):
            cls(**{each: value for each, value in values.items() if each != key})
            return key
    return None


def _words(error: Exception) -> str:
    return str(error.args[0]) if error.args else type(error).__name__
