"""Sources of plugins: the core's own, those given to ``open``, and entry points."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from importlib.util import find_spec
from typing import Final, TypeVar

import attrs

from lakelog.errors import PluginError
from lakelog.hookspecs import PROJECT
from lakelog.registry.metadata import Distribution
from lakelog.registry.scan import EntryPoint, entry_points

BUILTIN: Final = "builtin"
"""The name of the core's own plugin."""

_QUEUES: Final = "lakelog_queues.plugin"
"""Used even where plugins are given to ``open``: every store has its queues."""

DISABLE_VARIABLE: Final = "LAKELOG_DISABLE_PLUGINS"


@attrs.frozen
class PluginSource:
    """A plugin that may be loaded.

    :ivar name: printed by ``lakelog plugins``, and used to switch it off
    :ivar load: imports or returns the plugin
    :ivar distribution: the package that provides it, if known
    """

    name: str
    load: Callable[[], object]
    distribution: Distribution | None = None


def builtin_source() -> PluginSource:
    """The source of the core's own strategies: a plugin like any other."""
    return PluginSource(
        BUILTIN, partial(importlib.import_module, "lakelog.registry.builtin.plugin")
    )


def given_sources(plugins: Iterable[object]) -> list[PluginSource]:
    """Sources of the plugins passed to ``open``, and of ``queues`` if that is installed.

    A plugin is named by its ``__name__``, or else by its class.
    """
    given = [PluginSource(_name_of(plugin), partial(_identity, plugin)) for plugin in plugins]
    if any(each.name in ("queues", _QUEUES) for each in given) or not find_spec("lakelog_queues"):
        return given
    return [PluginSource("queues", partial(importlib.import_module, _QUEUES)), *given]


def installed_sources(path: Sequence[str]) -> list[PluginSource]:
    """Sources of the plugins in the entry point group ``lakelog`` along ``path``."""
    return [
        PluginSource(point.name, partial(_resolve, point), point.distribution)
        for point in entry_points(PROJECT, path)
    ]


def switched_off(environ: Mapping[str, str], disabled: Iterable[str]) -> frozenset[str]:
    """Names of plugins that the environment or the settings switch off."""
    listed = environ.get(DISABLE_VARIABLE, "").split(",")
    return frozenset(name.strip() for name in [*listed, *disabled] if name.strip())


def load(source: PluginSource) -> object:
    """Import a plugin; any failure becomes an error that names it."""
    try:
        return source.load()
    except Exception as error:
        raise error_in(
            source,
            f"importing it failed with {type(error).__name__}: {error}; repair or uninstall it, "
            f"or switch it off with {DISABLE_VARIABLE}={source.name}",
        ) from error


Kind = TypeVar("Kind", bound=PluginError)


def error_in(source: PluginSource, what: str, kind: type[Kind] = PluginError) -> Kind:  # type: ignore[assignment]  # the default is a PluginError, too
    """Build an error that names the plugin and, if known, its package."""
    package = str(source.distribution) if source.distribution else None
    return kind(what, plugin=source.name, distribution=package)


def _identity(plugin: object) -> object:
    return plugin


def _name_of(plugin: object) -> str:
    name = getattr(plugin, "__name__", None)
    return name if isinstance(name, str) else type(plugin).__qualname__


def _resolve(point: EntryPoint) -> object:
    module, _, attribute = point.value.partition(":")
    names = [name for name in attribute.strip().split(".") if name]
    return reduce(getattr, names, importlib.import_module(module.strip()))
