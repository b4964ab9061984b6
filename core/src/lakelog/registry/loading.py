"""Loads the plugins of one store, checks their hooks, and registers them with pluggy.

pluggy ignores functions without a marker, and leaves arguments with a default unset. Each is an
error here, as are misspelt hooks and arguments.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import attrs
import pluggy

from lakelog.registry.discovery import DISABLE_VARIABLE, PluginSource
from lakelog.registry.missing import suggestion
from lakelog_interfaces.errors import BadHook, DuplicateName, PluginError
from lakelog_interfaces.hookspecs import PROJECT, Hooks

PREFIX: Final = f"{PROJECT}_"
_MARKER: Final = f"{PROJECT}_impl"


@attrs.frozen
class Plugged:
    """The loaded plugins of a store, and those that are switched off.

    :ivar manager: the pluggy manager for all hook calls of a store
    :ivar sources: the source of each loaded plugin, by name
    :ivar off: the source of each plugin that is switched off, by name
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
    """Load, check and register plugins; those named in ``off`` are not imported.

    Raises :class:`~lakelog.errors.PluginError` if a plugin cannot be imported or registered,
    :class:`~lakelog.errors.BadHook`, and :class:`~lakelog.errors.DuplicateName`.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    wanted: dict[str, PluginSource] = {}
    unwanted: dict[str, PluginSource] = {}
    for source in sources:
        if source.name in off:
            unwanted[source.name] = source
        elif source.name in wanted:
            raise _duplicate(wanted[source.name], source)
        else:
            wanted[source.name] = source
    for source in wanted.values():
        _register(manager, source)
    manager.check_pending()
    return Plugged(manager, wanted, unwanted)


def _duplicate(first: PluginSource, second: PluginSource) -> PluginError:
    packages = [str(source.distribution or "given to open") for source in (first, second)]
    return second.error(
        f"there are two plugins of this name ({' and '.join(packages)}): uninstall one, or give "
        "one another name (an object is named by its __name__)",
        DuplicateName,
    )


def _register(manager: pluggy.PluginManager, source: PluginSource) -> None:
    plugin = _load(source)
    if getattr(type(plugin), "__hash__", None) is None:
        raise source.error("it cannot be hashed: give a module, or an object compared by identity")
    problem = _hook_problem(plugin)
    if problem:
        raise source.error(problem, BadHook)
    twin = manager.get_name(plugin)
    if twin is not None:
        raise source.error(f"it is the same plugin as {twin!r}: give it once", DuplicateName)
    try:
        manager.register(plugin, source.name)
    except (ValueError, pluggy.PluginValidationError) as error:
        raise source.error(f"pluggy refuses it: {error}") from error


def _load(source: PluginSource) -> object:
    try:
        return source.load()
    except Exception as error:
        raise source.error(
            f"importing it failed with {type(error).__name__}: {error}; repair or uninstall it, "
            f"or switch it off with {DISABLE_VARIABLE}={source.name}",
        ) from error


# --- hooks ---


@functools.cache
def known_hooks() -> dict[str, list[str]]:
    """The names of all hooks, with those of their arguments."""
    return {
        name: list(inspect.signature(spec).parameters)[1:]
        for name, spec in vars(Hooks).items()
        if name.startswith(PREFIX)
    }


def _hook_problem(plugin: object) -> str | None:
    """The first mistake in the hook functions of ``plugin``, if any."""
    marked = 0
    for name in dir(plugin):
        function = inspect.getattr_static(plugin, name, None)
        options = _options(function)
        if options is not None:
            marked += 1
            problem = _marked_problem(name, function, options)
            if problem:
                return problem
        elif name.startswith(PREFIX) and _looks_like_a_hook(function):
            return f"{name} lacks @hookimpl, so that it would never be called; add it, or rename it"
    if marked:
        return None
    return (
        "it has no hook at all: mark its functions with @lakelog.hookspecs.hookimpl, and let "
        "the entry point name the module or object that has them"
    )


def _options(function: object) -> Mapping[str, Any] | None:
    """The marker's options on a function, above or below ``staticmethod`` and the like."""
    for holder in (function, getattr(function, "__func__", None)):
        options = getattr(holder, _MARKER, None)
        if isinstance(options, dict):
            return options
    return None


def _looks_like_a_hook(function: object) -> bool:
    if isinstance(function, ModuleType | type):
        return False
    return callable(function) or isinstance(function, property | staticmethod | classmethod)


def _marked_problem(name: str, function: Any, options: Mapping[str, Any]) -> str | None:
    specs = known_hooks()
    hook = options.get("specname") or name
    if options.get("wrapper") or options.get("hookwrapper"):
        return f"{name} is a hook wrapper, which lakelog never calls; make it a plain hook"
    if hook not in specs:
        unknown = f"there is no hook {hook}{suggestion(hook, specs, 'the hooks are')}"
        return None if options.get("optionalhook") else unknown
    allowed = specs[hook]
    signature = inspect.signature(getattr(function, "__func__", function))
    for position, parameter in enumerate(signature.parameters.values()):
        if position == 0 and parameter.name in ("self", "cls"):
            continue
        if parameter.name not in allowed:
            expected = f"{hook}({', '.join(allowed)}); leave arguments out, but do not rename them"
            return f"{hook} has no argument {parameter}: it is {expected}"
        if parameter.default is not parameter.empty:
            return f"{hook} never gets {parameter.name}, as it has a default; remove that"
    return None
