"""Calls the hooks that offer strategies, once, and collects valid factories by name.

A name is also the name of a settings section, so names are unique across all kinds.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pluggy

from lakelog.errors import BadStrategy, DuplicateName, PluginError
from lakelog.interfaces import Factory, Kind
from lakelog.registry.factorycheck import returned
from lakelog.registry.plugged import Plugged
from lakelog.registry.sources import PluginSource, error_in
from lakelog.registry.words import spoken


@attrs.frozen
class Offered:
    """A factory, and the plugin that offers it."""

    factory: Factory
    source: PluginSource


def collect(plugged: Plugged) -> dict[str, Offered]:
    """All factories of the plugins, by name; raises if one is invalid."""
    found: dict[str, Offered] = {}
    for offered in _offered(plugged):
        name = offered.factory.name
        if name in found:
            raise _duplicate(name, found[name], offered)
        found[name] = offered
    return found


def _offered(plugged: Plugged) -> Iterator[Offered]:
    for kind in Kind:
        for source, caller in plugged.callers(kind.value):
            for factory in _ask(source, caller, kind):
                yield Offered(factory, source)


def _ask(source: PluginSource, caller: pluggy.HookCaller, kind: Kind) -> list[Factory]:
    try:
        results = caller()
    except Exception as error:
        what = f"{kind.value} failed with {type(error).__name__}: {error}"
        raise error_in(source, what) from error
    factories = returned(results, kind)
    if isinstance(factories, str):
        raise error_in(source, factories, BadStrategy)
    return factories


def _duplicate(name: str, first: Offered, second: Offered) -> PluginError:
    owner = f"plugin {first.source.name!r}"
    if first.source.distribution:
        owner += f" of {first.source.distribution}"
    return error_in(
        second.source,
        f"it offers the {spoken(second.factory.kind)} {name!r}, but {owner} offers "
        f"the {spoken(first.factory.kind)} {name!r} already; names are unique across all kinds: "
        "uninstall one of them, or switch one off with LAKELOG_DISABLE_PLUGINS",
        DuplicateName,
    )
