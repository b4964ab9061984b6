"""Converts values to the types that a settings class declares; strict, without coercion."""

from __future__ import annotations

import re
import types
from collections.abc import Collection, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import attrs

from lakelog.errors import SettingsError
from lakelog.settings.catalog import Given, dotted, keys_of, required
from lakelog.settings.units import parser_for

_STRICT: Final[Mapping[Any, tuple[tuple[type[Any], ...], str]]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a string"),
    bool: ((bool,), "true or false"),
    Path: ((str, Path), "a path"),
}
"""For each type: the accepted input types, and its name for errors."""
_LISTS: Final = (list, tuple, set, frozenset)
_BOOLS: Final = {"true": True, "false": False}


# --- type hints ---


def hints_of(cls: type[Any]) -> dict[str, Any]:
    """The types of a settings class's fields, by field name."""
    try:
        return get_type_hints(cls)
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
        value = int(number) if bare is int and int(number) == number else number
    return _typed(value, bare)


def _typed(value: Any, hint: Any) -> Any:
    kind, args = get_origin(hint) or hint, get_args(hint)
    if kind is Literal:
        return _literal(value, args)
    if is_union(hint):
        return _one_of(value, args)
    if items_of(hint):
        return _list(value, kind, args)
    if kind in _STRICT:
        accepted, name = _STRICT[kind]
        if isinstance(value, accepted) and (kind is bool or not isinstance(value, bool)):
            return kind(value)
        raise TypeError(f"expected {name}, got {_shown(value)}")
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
    raise TypeError(f"expected {getattr(kind, '__name__', kind)}, got {_shown(value)}")


def _literal(value: object, words: tuple[Any, ...]) -> object:
    if any(value == word and type(value) is type(word) for word in words):
        return value
    raise ValueError(f"expected one of {', '.join(map(str, words))}, got {_shown(value)}")


def _one_of(value: object, hints: tuple[Any, ...]) -> Any:
    """The type of the value itself is preferred to one that it can be converted to."""
    for hint in sorted(hints, key=lambda each: each is not type(value)):
        try:
            return _typed(value, hint)
        except (ValueError, TypeError):
            continue
    raise TypeError(f"expected {' or '.join(map(str, hints))}, got {_shown(value)}")


def _list(value: Any, kind: type[Any], hints: tuple[Any, ...]) -> Any:
    if not isinstance(value, _LISTS):
        raise TypeError(f"expected a list, got {_shown(value)}")
    made = kind if kind in _LISTS else tuple
    if kind is not tuple or not hints or hints[-1] is Ellipsis:
        hints = (*hints, Any)[:1] * len(value)
    if len(hints) != len(value):
        raise TypeError(f"expected a list of {len(hints)}, got {_shown(value)}")
    return made(map(_typed, value, hints))


def _table(value: Mapping[str, Any], cls: type[Any]) -> Any:
    hints, fields = hints_of(cls), keys_of(cls)
    unknown = ", ".join(str(key) for key in value if key not in fields)
    if unknown:
        raise ValueError(f"there is no such key: {unknown}; the keys are {', '.join(fields)}")
    return cls(**{key: convert(each, hints[fields[key].name], key) for key, each in value.items()})


def _shown(value: object) -> str:
    return f"{value!r} ({type(value).__name__})"


def from_text(text: str, hint: Any) -> object:
    """Convert text of a source without types to the value that TOML would give.

    Unreadable text is returned unchanged, so that :func:`convert` rejects it with a reason.
    """
    bare, optional = without_none(hint)
    if optional and not text:
        return None
    if bare is bool:
        return _BOOLS.get(text.strip().lower(), text)
    if bare in (int, float):
        try:
            return bare(text)
        except ValueError:
            return text
    return tuple(filter(None, map(str.strip, text.split(",")))) if items_of(bare) else text


# --- sections ---


def build(section: str, cls: type[Any], givens: Mapping[str, Given]) -> Any:
    """An instance of ``cls`` with the values ``givens`` by key, and defaults for the rest."""
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
        raise _refusal(error, cls, values, givens) from error


def _value(given: Given, hint: Any) -> object:
    value = given.value
    if given.text and isinstance(value, str):
        value = from_text(value, hint)
    try:
        return convert(value, hint, given.key)
    except (ValueError, TypeError) as error:
        raise SettingsError(_words(error), key=given.dotted, source=given.origin) from error


def _refusal(
    error: Exception, cls: type[Any], values: Mapping[str, object], givens: Mapping[str, Given]
) -> SettingsError:
    """Locate an error of a validator: at the value that it refuses, or at a key in its text."""
    words = _words(error)
    fields = keys_of(cls)
    refused = [key for key in fields if key in values and _refuses(fields[key], values[key], words)]
    named = [word for word in re.findall(r"\w+", words) if word in givens]
    for key in (*refused, *named):
        return SettingsError(words, key=givens[key].dotted, source=givens[key].origin)
    sources = ", ".join(sorted({given.origin for given in givens.values()}))
    return SettingsError(words, source=sources)


def _refuses(field: attrs.Attribute[Any], value: object, words: str) -> bool:
    """Whether a field's validator refuses ``value`` with the same words."""
    try:
        if field.validator is not None:
            field.validator(None, field, value)
    except (ValueError, TypeError) as error:
        return _words(error) == words
    except AttributeError:  # a validator that reads other fields cannot run alone
        return False
    return False


def _words(error: Exception) -> str:
    return str(error.args[0]) if error.args else type(error).__name__
