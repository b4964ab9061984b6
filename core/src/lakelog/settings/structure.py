"""Converts values to the types that a settings class declares; strict, without coercion.

cattrs converts the rest, and is imported only if needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import attrs

from lakelog.errors import SettingsError
from lakelog.settings.catalog import keys_of
from lakelog.settings.given import Given, dotted
from lakelog.settings.hints import fits, hints_of, items_of, without_none
from lakelog.settings.text import from_text
from lakelog.settings.units import parser_for

if TYPE_CHECKING:
    from cattrs import Converter


def build(section: str, cls: type[Any], givens: Mapping[str, Given]) -> Any:
    """An instance of ``cls`` with the values ``givens`` by key, and defaults for the rest."""
    if not givens:
        return cls()
    hints, fields = hints_of(cls), keys_of(cls)
    values = {key: _value(given, hints[fields[key].name]) for key, given in givens.items()}
    missing = [key for key in required(cls) if key not in values]
    if missing:
        names = ", ".join(dotted(section, key) for key in missing)
        raise SettingsError(f"{names} must be set too: there is no default")
    return _construct(cls, values, givens)


def required(cls: type[Any]) -> list[str]:
    """The keys without a default."""
    return [key for key, field in keys_of(cls).items() if field.default is attrs.NOTHING]


def convert(value: object, hint: Any, key: str) -> object:
    """Convert ``value`` to the type ``hint``; raises ``ValueError`` or ``TypeError``.

    :param key: the field's name, whose suffix determines its unit
    """
    bare, optional = without_none(hint)
    if optional and (value is None or value == ""):
        return None
    parse = parser_for(key) if bare in (int, float) else None
    value = _in_type(parse(value), bare) if parse else value
    return value if fits(value, hint) else _structured(value, bare)


def _value(given: Given, hint: Any) -> object:
    value = given.value
    if given.text and isinstance(value, str):
        value = from_text(value, hint)
    try:
        return convert(value, hint, given.key)
    except (ValueError, TypeError) as error:
        raise _located(error, given) from error


def _in_type(number: float, kind: Any) -> object:
    """Convert to an integer only if nothing is lost; percentages may have fractions."""
    return kind(number) if kind(number) == number else number


def _construct(cls: type[Any], values: Mapping[str, object], givens: Mapping[str, Given]) -> Any:
    """Create the instance; an error names the value that caused it, if possible."""
    try:
        return cls(**values)
    except (ValueError, TypeError) as error:
        for key, field in keys_of(cls).items():
            refusal = _refusal(field, values[key]) if key in values else None
            if refusal is not None:
                raise _located(refusal, givens[key]) from error
        named = _named(_words(error), givens)
        if named is not None:
            raise _located(error, named) from error
        sources = ", ".join(sorted({given.origin for given in givens.values()}))
        raise SettingsError(_words(error), source=sources) from error


def _refusal(field: attrs.Attribute[Any], value: object) -> Exception | None:
    if field.validator is None:
        return None
    try:
        field.validator(None, field, value)
    except (ValueError, TypeError) as error:
        return error
    except AttributeError:  # a validator that reads other fields cannot run alone
        return None
    return None


def _named(words: str, givens: Mapping[str, Given]) -> Given | None:
    """The first given value whose key occurs in the text of an error."""
    return next((givens[word] for word in re.findall(r"\w+", words) if word in givens), None)


def _located(error: Exception, given: Given) -> SettingsError:
    return SettingsError(_words(error), key=given.dotted, source=given.origin)


def _words(error: Exception) -> str:
    return str(error.args[0]) if error.args else type(error).__name__


def _structured(value: object, hint: Any) -> object:
    """Convert ``value`` with cattrs; any exception becomes ``ValueError`` or ``TypeError``."""
    from cattrs.errors import StructureHandlerNotFoundError  # slow to import

    if get_origin(hint) is Literal:
        words = ", ".join(map(str, get_args(hint)))
        raise ValueError(f"expected one of {words}, got {_shown(value)}")
    if items_of(hint) and not isinstance(value, list | tuple | set | frozenset):
        raise TypeError(f"expected a list, got {_shown(value)}")
    try:
        return _converter().structure(value, hint)
    except (ValueError, TypeError):
        raise
    except StructureHandlerNotFoundError as error:
        raise TypeError(f"expected {hint}, got {_shown(value)}") from error
    except Exception as error:
        raise TypeError(f"got {_shown(value)}: {error}") from error


def _converter() -> Converter:
    from cattrs import Converter  # slow to import

    converter = Converter(detailed_validation=False, forbid_extra_keys=True)
    for kind, (accepted, name) in _STRICT.items():
        converter.register_structure_hook(kind, _strict(kind, accepted, name))
    return converter


_STRICT: Mapping[type[Any], tuple[tuple[type[Any], ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a string"),
    bool: ((bool,), "true or false"),
    Path: ((str, Path), "a path"),
}
"""For each type: the accepted input types, and its name for errors."""


def _strict(
    kind: type[Any], accepted: tuple[type[Any], ...], name: str
) -> Callable[[object, object], Any]:
    def hook(value: object, _: object) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"expected {name}, got {_shown(value)}")
        return kind(value)

    return hook


def _shown(value: object) -> str:
    return f"{value!r} ({type(value).__name__})"
