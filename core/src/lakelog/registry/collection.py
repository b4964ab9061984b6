"""Calls the hooks that offer strategies, once, and collects valid factories by name.

A name is also the name of a settings section, so names are unique across all kinds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import attrs
import pluggy

from lakelog.registry.discovery import PluginSource
from lakelog.registry.loading import Plugged
from lakelog.registry.missing import kind_text
from lakelog.settings.model import StoreSettings
from lakelog_interfaces.errors import BadStrategy, DuplicateName
from lakelog_interfaces.strategies import Factory, Kind

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TAKEN: Final = {"auto", *attrs.fields_dict(StoreSettings)}
"""Names that the core's own settings use."""


@attrs.frozen
class Offered:
    """A factory, and the plugin that offers it."""

    factory: Factory
    source: PluginSource


def collect(plugged: Plugged) -> dict[str, Offered]:
    """All factories of the plugins, by name.

    Raises :class:`~lakelog.errors.PluginError` if a hook fails,
    :class:`~lakelog.errors.BadStrategy` for an invalid factory, and
    :class:`~lakelog.errors.DuplicateName`.
    """
    found: dict[str, Offered] = {}
    for kind in Kind:
        for source, caller in plugged.callers(kind.value):
            for factory in _factories(source, caller, kind):
                if factory.name in found:
                    raise _duplicate(found[factory.name], factory, source)
                found[factory.name] = Offered(factory, source)
    return found


def _duplicate(first: Offered, second: Factory, source: PluginSource) -> DuplicateName:
    package = first.source.distribution
    owner = f"plugin {first.source.name!r}" + (f" of {package}" if package else "")
    return source.error(
        f"it offers the {kind_text(second.kind)} {second.name!r}, but {owner} offers "
        f"the {kind_text(first.factory.kind)} {second.name!r} already; names are unique across all "
        "kinds: uninstall one of them, or switch one off with LAKELOG_DISABLE_PLUGINS",
        DuplicateName,
    )


def _factories(source: PluginSource, caller: pluggy.HookCaller, kind: Kind) -> list[Factory]:
    hook = kind.value
    try:
        results: list[Any] = caller()
    except Exception as error:
        raise source.error(f"{hook} failed with {type(error).__name__}: {error}") from error
    if not results:
        what = f"{hook} returned None; return a list of factories (it may be empty)"
        raise source.error(what, BadStrategy)
    factories: list[Factory] = []
    for result in results:
        if isinstance(result, str) or not isinstance(result, Sequence):
            what = f"{hook} returned {_shown(result)}; return a list of factories"
            raise source.error(what, BadStrategy)
        factories += result
    for each in factories:
        problem = _problem(each, kind)
        if problem:
            raise source.error(problem, BadStrategy)
    return factories


def _problem(factory: Any, kind: Kind) -> str | None:
    """Describe the mistake in an item that the hook of ``kind`` returned, if any."""
    if not isinstance(factory, Factory):
        return f"{kind.value} returned a list with {_shown(factory)}; return Factory objects"
    name: Any = factory.name
    if factory.kind is not kind:
        return f"{kind.value} returned {name!r}, whose kind is {factory.kind}"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return (
            f"it offers the name {name!r}; a name is lower-case words of letters and digits "
            "with single hyphens between them"
        )
    if name.replace("-", "_") in _TAKEN:
        return f"it offers the name {name!r}, which the core's own settings use"
    return _bad_parts(name, kind, factory.settings, factory.make)


def _bad_parts(name: str, kind: Kind, settings: Any, make: Any) -> str | None:
    if not (isinstance(settings, type) and attrs.has(settings)):
        return (
            f"the settings of {name!r} are {_shown(settings)}, which is no attrs class; "
            "use @attrs.frozen, or lakelog.interfaces.NoSettings"
        )
    if kind is Kind.SETTINGS_FORMAT and attrs.fields(settings):
        return (
            f"the settings format {name!r} has settings, but it is used before any are read; use "
            "lakelog.interfaces.NoSettings"
        )
    if not callable(make):
        return f"make of {name!r} is {_shown(make)}, which cannot be called"
    return None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
