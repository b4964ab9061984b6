"""Converts values to the types that a settings class declares; strict, without coercion."""

from __future__ import annotations

import re
import types
from collections.abc import Collection, Mapping
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import attrs

from lakelog.settings.catalog import Given, dotted, keys_of, required
from lakelog.settings.units import parser_for
from lakelog_format.arguments import LONGEST_MS
from lakelog_interfaces.errors import SettingsError

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
        return _type_hints(cls)  # type: ignore[arg-type]  # mypy doubts that type[Any] is hashable
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
            return kind(value)
        raise _unfit(value, name)
    return _instance(value, object if kind is Any else kind, args)


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
    return TypeError(f"expected {expected}, got {value!r} ({type(value).__name__})")


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
