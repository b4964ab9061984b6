"""The plugins of one store, loaded, checked and registered with its own pluggy manager."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import attrs
import pluggy

from lakelog.errors import DuplicateName, PluginError
from lakelog.hookspecs import PROJECT, Hooks
from lakelog.registry.hookcheck import check_hooks
from lakelog.registry.sources import PluginSource, error_in, load


@attrs.frozen
class Plugged:
    """Loaded plugins by name, and those that were switched off.

    :ivar manager: the pluggy manager for all hook calls of a store
    :ivar sources: source of each plugin
    :ivar off: plugins that are switched off, not imported
    """

    manager: pluggy.PluginManager
    sources: Mapping[str, PluginSource]
    off: Mapping[str, PluginSource]

    def callers(self, hook: str) -> Iterator[tuple[PluginSource, pluggy.HookCaller]]:
        """Each plugin that implements ``hook``, with a caller for its implementation only."""
        names = [impl.plugin_name for impl in getattr(self.manager.hook, hook).get_hookimpls()]
        plugins = {name: self.manager.get_plugin(name) for name in reversed(names)}
        for name, plugin in plugins.items():
            others = [other for other in plugins.values() if other is not plugin]
            yield self.sources[name], self.manager.subset_hook_caller(hook, others)


def plug_in(sources: Iterable[PluginSource], off: Iterable[str]) -> Plugged:
    """Load, check and register plugins; those named in ``off`` are not imported."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    wanted, unwanted = _by_name(sources, frozenset(off))
    for source in wanted.values():
        _register(manager, source)
    manager.check_pending()
    return Plugged(manager, wanted, unwanted)


def _by_name(
    sources: Iterable[PluginSource], off: frozenset[str]
) -> tuple[dict[str, PluginSource], dict[str, PluginSource]]:
    wanted: dict[str, PluginSource] = {}
    unwanted: dict[str, PluginSource] = {}
    for source in sources:
        if source.name in off:
            unwanted[source.name] = source
            continue
        if source.name in wanted:
            raise _duplicate(wanted[source.name], source)
        wanted[source.name] = source
    return wanted, unwanted


def _duplicate(first: PluginSource, second: PluginSource) -> PluginError:
    packages = [str(source.distribution or "given to open") for source in (first, second)]
    return error_in(
        second,
        f"there are two plugins of this name ({' and '.join(packages)}): uninstall one, or give "
        "one another name (an object is named by its __name__)",
        DuplicateName,
    )


def _register(manager: pluggy.PluginManager, source: PluginSource) -> None:
    plugin = load(source)
    complain = partial(error_in, source)
    if getattr(type(plugin), "__hash__", None) is None:
        raise complain("it cannot be hashed: give a module, or an object compared by identity")
    check_hooks(plugin, complain)
    twin = manager.get_name(plugin)
    if twin is not None:
        raise complain(f"it is the same plugin as {twin!r}: give it once", DuplicateName)
    try:
        manager.register(plugin, source.name)
    except (ValueError, pluggy.PluginValidationError) as error:
        raise complain(f"pluggy refuses it: {error}") from error
