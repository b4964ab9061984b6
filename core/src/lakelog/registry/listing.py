"""The rows that ``lakelog plugins`` prints: every strategy on offer, and every plugin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from lakelog.interfaces import Kind
from lakelog.registry.collection import Offered
from lakelog.registry.discovery import BUILTIN, Distribution, PluginSource, distribution
from lakelog.registry.loading import Plugged
from lakelog.settings.catalog import keys_of


@attrs.frozen
class Setting:
    """One key of a strategy's section.

    :ivar name: the key
    :ivar type: its annotation, as text
    :ivar default: its default as text; ``None`` if a value is required
    """

    name: str
    type: str
    default: str | None


@attrs.frozen
class Offer:
    """One strategy.

    :ivar plugin: the plugin that offers it
    :ivar distribution: the package that provides the plugin; ``None`` if it was given directly
    """

    kind: Kind
    name: str
    plugin: str
    distribution: str | None
    version: str | None
    summary: str
    settings: tuple[Setting, ...]


@attrs.frozen
class PluginRow:
    """One plugin.

    :ivar hooks: the hooks that it implements; empty if it is switched off
    :ivar enabled: whether it is in use
    """

    name: str
    distribution: str | None
    version: str | None
    hooks: tuple[str, ...]
    enabled: bool


def offers(found: Iterable[Offered]) -> Iterator[Offer]:
    """One row per strategy, by kind and name."""
    order = list(Kind)
    for item in sorted(found, key=lambda it: (order.index(it.factory.kind), it.factory.name)):
        factory, package = item.factory, package_of(item.source)
        yield Offer(
            kind=factory.kind,
            name=factory.name,
            plugin=item.source.name,
            distribution=package.name if package else None,
            version=package.version if package else None,
            summary=factory.summary,
            settings=tuple(_settings(factory.settings)),
        )


def plugin_rows(plugged: Plugged) -> Iterator[PluginRow]:
    """One row per plugin, including those that are switched off, by name."""
    for name, source in sorted({**plugged.sources, **plugged.off}.items()):
        package = package_of(source)
        yield PluginRow(
            name=name,
            distribution=package.name if package else None,
            version=package.version if package else None,
            hooks=_hooks(plugged, name),
            enabled=name in plugged.sources,
        )


def _hooks(plugged: Plugged, name: str) -> tuple[str, ...]:
    callers = plugged.manager.get_hookcallers(plugged.manager.get_plugin(name)) or ()
    return tuple(sorted(caller.name for caller in callers))


def package_of(source: PluginSource) -> Distribution | None:
    """The package that provides a plugin, if known."""
    return distribution("lakelog-core") if source.name == BUILTIN else source.distribution


def _settings(section: type[attrs.AttrsInstance]) -> Iterator[Setting]:
    for key, field in keys_of(section).items():
        yield Setting(key, _type(field.type), _default(field.default))


def _type(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation or "")


def _default(default: object) -> str | None:
    if default is attrs.NOTHING:
        return None
    factory = getattr(default, "factory", None)
    return f"{factory.__name__}()" if callable(factory) else repr(default)
