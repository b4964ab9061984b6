"""Checks the result of a strategy hook: a list of valid factories of its kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import attrs

from lakelog.interfaces import Factory, Kind
from lakelog.settings.model import StoreSettings

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_AUTO: Final = "auto"


def returned(results: Sequence[object], kind: Kind) -> list[Factory] | str:
    """Join the factories that a hook returned, or describe what is wrong with them."""
    factories: list[Factory] = []
    if not results:
        return f"{kind.value} returned None; return a list of factories (it may be empty)"
    for result in results:
        if isinstance(result, str) or not isinstance(result, Sequence):
            return f"{kind.value} returned {_shown(result)}; return a list of factories"
        factories += result
    return next(filter(None, (problem(item, kind) for item in factories)), None) or factories


def problem(factory: object, kind: Kind) -> str | None:
    """Describe what is wrong with one item that the hook of ``kind`` returned, if anything."""
    if not isinstance(factory, Factory):
        return f"{kind.value} returned a list with {_shown(factory)}; return Factory objects"
    if factory.kind is not kind:
        return f"{kind.value} returned {factory.name!r}, whose kind is {factory.kind}"
    return _bad_name(factory.name) or _bad_parts(factory)


def _bad_name(name: object) -> str | None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return (
            f"it offers the name {name!r}; a name is lower-case words of letters and digits "
            "with single hyphens between them"
        )
    if name == _AUTO or name.replace("-", "_") in attrs.fields_dict(StoreSettings):
        return f"it offers the name {name!r}, which the core's own settings use"
    return None


def _bad_parts(factory: Factory) -> str | None:
    name, settings, make = factory.name, _untyped(factory.settings), _untyped(factory.make)
    if not (isinstance(settings, type) and attrs.has(settings)):
        return (
            f"the settings of {name!r} are {_shown(settings)}, which is no attrs class; "
            "use @attrs.frozen, or lakelog.interfaces.NoSettings"
        )
    if factory.kind is Kind.SETTINGS_FORMAT and attrs.fields(settings):
        return (
            f"the settings format {name!r} has settings, but it is used before any are read; use "
            "lakelog.interfaces.NoSettings"
        )
    if not callable(make):
        return f"make of {name!r} is {_shown(make)}, which cannot be called"
    return None


def _untyped(value: Any) -> Any:
    """Drop the declared type: plugins may violate it at run time."""
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
