"""Finds plugins, loads them, checks their hooks, and registers them with pluggy.

Plugins are the core's own, those given to ``open``, and installed ones by entry points. pluggy
ignores functions without a marker, and leaves arguments with a default unset. Each is an error
here, as are misspelt hooks and arguments. The error for a chosen strategy that is not installed
names the remedy.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial, reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple, TypeVar

import pluggy

from lakelog.errors import BadHook, DuplicateName, MissingPlugin, PluginError, raised_by_handler
from lakelog.hooks import Kind
from lakelog.hooks.hookspecs import PROJECT, Hooks
from lakelog.settings.effective import nearest

BUILTIN: Final = "builtin"
"""The name of the core's own plugin."""

DISABLE_VARIABLE: Final = "LAKELOG_DISABLE_PLUGINS"

_OF_EVERY_STORE: Final = ("queues", "retention")
"""Used even if plugins are given to ``open``, since every store may need them."""

ErrorT = TypeVar("ErrorT", bound=PluginError)


class Distribution(NamedTuple):
    """An installed package, such as ``lakelog-writers 1.2``."""

    name: str
    version: str

    def __str__(self) -> str:
        """Name and version, as errors print them."""
        return f"{self.name} {self.version}".rstrip()

    @property
    def normalized_name(self) -> str:
        """The name normalised as in PEP 503; equal results mean the same package."""
        return _normalized(self.name)


class PluginSource(NamedTuple):
    """A plugin that may be loaded.

    :ivar name: printed by ``lakelog plugins``, and used to switch it off
    :ivar load: imports or returns the plugin
    :ivar find_distribution: finds the package that provides it: only errors and listings need it
    """

    name: str
    load: Callable[[], object]
    find_distribution: Callable[[], Distribution | None] = lambda: None

    @property
    def distribution(self) -> Distribution | None:
        """The package that provides the plugin, if known."""
        return self.find_distribution()

    @property
    def package(self) -> Distribution | None:
        """The package that provides the plugin, if known; for the core's own plugin too."""
        return distribution("lakelog-core") if self.name == BUILTIN else self.distribution

    def error(self, what: str, kind: type[ErrorT] = PluginError) -> ErrorT:  # type: ignore[assignment]  # the default is a PluginError, too
        """Build an error that names the plugin and, if known, its package."""
        package = str(self.distribution) if self.distribution else None
        return kind(what, plugin=self.name, distribution=package)


def builtin_source() -> PluginSource:
    """The source of the core's own strategies: a plugin like any other."""
    return PluginSource(BUILTIN, partial(import_module, "lakelog.builtin"))


def given_sources(plugins: Iterable[object]) -> list[PluginSource]:
    """Sources of the plugins passed to ``open``, and of those for every store, if installed.

    A plugin is named by its ``__name__``, or else by its class.
    """
    given = list(map(_given, plugins))
    names = {each.name for each in given}
    for name in reversed(_OF_EVERY_STORE):
        module = f"lakelog_{name}.plugin"
        if names.isdisjoint((name, module)) and find_spec(f"lakelog_{name}"):
            load = partial(import_module, module)
            given.insert(0, PluginSource(name, load, partial(distribution, f"lakelog-{name}")))
    return given


def installed_sources() -> list[PluginSource]:
    """Sources of the plugins in the entry point group ``lakelog``, sorted by name.

    Folders are read here: importing ``importlib.metadata`` takes a tenth of a whole open. It reads
    the rest, such as zip files.
    """
    found: list[PluginSource] = []
    folders = _metadata_folders(search_path())
    for folder in folders.values():
        with suppress(OSError):
            text = Path(folder, "entry_points.txt").read_text(encoding="utf-8", errors="replace")
            package = partial(_described, folder)
            found += (PluginSource(*each, package) for each in _points(text))
    if any(os.path.isfile(each) for each in sys.path):
        found += _elsewhere(folders)
    return sorted(found, key=lambda source: source.name)


@functools.lru_cache(maxsize=1)
def _metadata_folders(_path: object) -> Mapping[str, str]:
    """The folder with the metadata of each package, by normalised name; the first one counts.

    :param _path: the key of the cache: the result of :func:`search_path`
    """
    found: dict[str, str] = {}
    for entry in sys.path:
        with suppress(OSError):
            for name in sorted(os.listdir(entry or os.curdir)):
                base, _, kind = name.rpartition(".")
                if kind in {"dist-info", "egg-info"}:
                    found.setdefault(_normalized(base.partition("-")[0]), f"{entry or '.'}/{name}")
    return found


def _points(text: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Name and loader of each entry point of the group, from an ``entry_points.txt``."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        name, is_point, value = line.partition("=")
        if line.startswith("["):
            section = line[1:-1].strip()
        elif section == PROJECT and is_point and not line.startswith(("#", ";")):
            module, _, attribute = value.partition("[")[0].partition(":")
            yield name.strip(), partial(_loaded, module.strip(), attribute.strip())


def _loaded(module: str, attribute: str) -> object:
    found: object = import_module(module)
    return reduce(getattr, filter(None, attribute.split(".")), found)


def _normalized(name: str) -> str:
    """The name of a package as in PEP 503; equal results mean the same package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _described(folder: str) -> Distribution | None:
    """The package by its metadata, whose first lines have name and version."""
    with suppress(OSError):
        name = "METADATA" if folder.endswith(".dist-info") else "PKG-INFO"
        head = Path(folder, name).read_text(encoding="utf-8", errors="replace")
        lines = (line.partition(": ") for line in head.partition("\n\n")[0].splitlines())
        fields = {key: value.strip() for key, _, value in lines}
        with suppress(KeyError):
            return Distribution(fields["Name"], fields["Version"])
    return None


def _elsewhere(known: Container[str]) -> Iterator[PluginSource]:
    from importlib.metadata import entry_points

    for point in entry_points(group=PROJECT):
        if point.dist is not None and _normalized(point.dist.name) not in known:
            package = partial(Distribution, point.dist.name, point.dist.version)
            yield PluginSource(point.name, point.load, package)


def search_path() -> tuple[tuple[str, int, int, int], ...]:
    """The state of each folder in ``sys.path``, which changes if a plugin is installed or removed.

    An installer adds or removes an entry in one of these folders, which changes its time.

    :returns: for each folder its name, device, inode number, and time of change in ns since 1970
    """
    found = []
    for entry in sys.path:
        with suppress(OSError):
            status = os.stat(entry or os.curdir)
            found.append((entry, status.st_dev, status.st_ino, status.st_mtime_ns))
    return tuple(found)


@cache
def distribution(name: str) -> Distribution | None:
    """The package ``name``, cached at the first call: later versions on disk are not loaded."""
    folder = _metadata_folders(search_path()).get(name)
    if folder is not None:
        return _described(folder)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Distribution(name, version(name))
    except PackageNotFoundError:
        return None


_DEFAULT_PACKAGES: Final = {
    f"lakelog-{name.replace('_', '-')}": f"lakelog_{name}"
    for name in ("flush", "hash_index", "queues", "retention", "rocketmq", "writers")
}
"""The packages that the distribution ``lakelog`` brings, with the module of each."""


def check_metadata() -> None:
    """Refuse packages without metadata, whose plugins would be left out in silence.

    A frozen program has none unless asked; nor has a folder of sources. A core that is installed
    alone has its own.

    Raises :class:`~lakelog.errors.PluginError`.
    """
    if distribution("lakelog-core") is None:
        lacking = ["lakelog-core", *_DEFAULT_PACKAGES]
    else:
        lacking = [
            name
            for name, module in _DEFAULT_PACKAGES.items()
            if find_spec(module) is not None and distribution(name) is None
        ]
    if lacking:
        raise PluginError(
            f"the metadata (.dist-info) of {lacking[0]} is missing, by whose entry points plugins "
            "are found, so that the store would silently be one without queues, index or timed "
            "flushes: install the packages, or freeze them with their metadata and modules (for "
            "PyInstaller: " + " ".join(f"--copy-metadata {name}" for name in lacking) + " and "
            "--collect-submodules of each module), or name the plugins with plugins=[...]"
        )


def switched_off(environ: Mapping[str, str]) -> frozenset[str]:
    """Names of plugins that the environment switches off."""
    listed = environ.get(DISABLE_VARIABLE, "").split(",")
    return frozenset(name.strip() for name in listed if name.strip())


def _given(plugin: object) -> PluginSource:
    name = getattr(plugin, "__name__", None)
    return PluginSource(
        name if isinstance(name, str) else type(plugin).__qualname__, lambda: plugin
    )


FIRST_PARTY: Final[Mapping[str, tuple[Kind, str]]] = {
    "mmap": (Kind.WRITER, "lakelog-writers"),
    "staged": (Kind.WRITER, "lakelog-writers"),
    "direct": (Kind.WRITER, "lakelog-writers"),
    "group-commit": (Kind.FLUSH_STRATEGY, "lakelog-flush"),
    "timed": (Kind.FLUSH_STRATEGY, "lakelog-flush"),
    "rocketmq-ha": (Kind.REPLICATOR, "lakelog-replication"),
    "consume-queue": (Kind.DISPATCHER, "lakelog-queues"),
    "hash-index": (Kind.DISPATCHER, "lakelog-hash-index"),
    "retention": (Kind.CLEANER, "lakelog-retention"),
    "psutil": (Kind.DISK_WATCHER, "lakelog-retention"),
    "lake": (Kind.FOLLOWER, "lakelog-lake"),
    "fsspec": (Kind.SEGMENT_SOURCE, "lakelog-archive"),
    "native": (Kind.ACCELERATOR, "lakelog-native"),
    "broker-conf": (Kind.SETTINGS_FORMAT, "lakelog-rocketmq"),
}
"""Strategies of this project that have their own package."""


def missing(
    kind: Kind,
    name: str,
    installed: Mapping[str, Kind],
    off: Mapping[str, PluginSource],
    left_out: Iterable[PluginSource] = (),
) -> MissingPlugin:
    """Build the error for a ``name`` of ``kind`` that no plugin offers.

    :param installed: the kind of every strategy on offer, by name
    :param off: plugins that are switched off
    :param left_out: installed plugins that are replaced by those given to ``open``
    """
    offered = {each: found for each, (found, _) in FIRST_PARTY.items()} | dict(installed)
    names = sorted(each for each, found in installed.items() if found is kind)
    there = f"; installed are {', '.join(names)}" if names else "; none is installed"
    if offered.get(name, kind) is not kind:
        found = kind_text(offered[name])
        return MissingPlugin(f"{name!r} is a {found}, and a {kind_text(kind)} is wanted{there}")
    package = FIRST_PARTY[name][1] if name in FIRST_PARTY else None
    what = f"no {kind_text(kind)} {name!r} is installed"
    for source in off.values():
        if _brings(source, name, package):
            why = f"the plugin {source.name!r} is switched off; remove it from what disables it"
            return MissingPlugin(f"{what}: {why}")
    for source in left_out:
        if _brings(source, name, package):
            return MissingPlugin(
                f"the {kind_text(kind)} {name!r} is installed ({source.distribution or source.name}"
                "), but plugins=[...] is used instead of installed plugins: add it there"
            )
    if package:
        return MissingPlugin(f"{what}: pip install {package}")
    meant = nearest(name, sorted(each for each, found in offered.items() if found is kind))
    if not meant:
        return MissingPlugin(f"{what}{there}")
    remedy = "" if meant in installed else f" (pip install {FIRST_PARTY[meant][1]})"
    return MissingPlugin(f"{what}{there}; did you mean {meant!r}{remedy}?")


def _brings(source: PluginSource, name: str, package: str | None) -> bool:
    """Whether a plugin provides the strategy ``name``, judged by its name or its package."""
    found = source.distribution
    return source.name == name or (found is not None and found.name == package)


def suggestion(name: str, known: Iterable[str], lead: str) -> str:
    """The end of an error message: the nearest known name, or all names after ``lead``.

    >>> suggestion("mmmap", ["file", "mmap"], "there are")
    "; did you mean 'mmap'?"
    >>> suggestion("s3", ["file", "mmap"], "there are")
    '; there are file, mmap'
    """
    names = sorted(known)
    meant = nearest(name, names)
    return f"; did you mean {meant!r}?" if meant else f"; {lead} {', '.join(names) or 'none'}"


def kind_text(kind: Kind) -> str:
    """The name of a kind in a sentence.

    >>> kind_text(Kind.FLUSH_STRATEGY)
    'flush strategy'
    """
    return kind.name.lower().replace("_", " ")


PREFIX: Final = f"{PROJECT}_"
_MARKER: Final = f"{PROJECT}_impl"


class Plugged(NamedTuple):
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


class _PluginManager(pluggy.PluginManager):
    """Passes over the unmarked names of a module, which pluggy would look up one by one."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        """The options of the hook ``name`` of ``plugin``; ``None`` if it is no hook."""
        if isinstance(plugin, ModuleType) and _options(vars(plugin).get(name)) is None:
            return None
        return super().parse_hookimpl_opts(plugin, name)


def plug_in(sources: Iterable[PluginSource], off: Iterable[str]) -> Plugged:
    """Load, check and register plugins; those named in ``off`` are not imported.

    Raises :class:`~lakelog.errors.PluginError` if a plugin cannot be imported or registered,
    :class:`~lakelog.errors.BadHook`, and :class:`~lakelog.errors.DuplicateName`.
    """
    manager = _PluginManager(PROJECT)
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
        if raised_by_handler(error):
            raise
        raise source.error(
            f"importing it failed with {type(error).__name__}: {error}; repair or uninstall it, "
            f"or switch it off with {DISABLE_VARIABLE}={source.name}",
        ) from error


# --- hooks ---


@functools.cache
def known_hooks() -> dict[str, tuple[str, ...]]:
    """The names of all hooks, with those of their arguments."""
    return {
        name: _parameters(spec)[1:] for name, spec in vars(Hooks).items() if name.startswith(PREFIX)
    }


def _parameters(function: Any) -> tuple[str, ...]:
    """Names of parameters; ``inspect`` needs a hundred times as long."""
    code: CodeType = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _hook_problem(plugin: object) -> str | None:
    """The first mistake in the hook functions of ``plugin``, if any."""
    marked = 0
    is_module = isinstance(plugin, ModuleType)
    for name in sorted(vars(plugin)) if is_module else dir(plugin):
        function = vars(plugin)[name] if is_module else inspect.getattr_static(plugin, name, None)
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
        "it has no hook at all: mark its functions with @lakelog.hooks.hookspecs.hookimpl, and let "
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
    function = getattr(function, "__func__", function)
    is_open = function.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if not (is_open or function.__defaults__ or set(_parameters(function)) - {"self", *allowed}):
        return None
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        if position == 0 and parameter.name in ("self", "cls"):
            continue
        if parameter.name not in allowed:
            expected = f"{hook}({', '.join(allowed)}); leave arguments out, but do not rename them"
            return f"{hook} has no argument {parameter}: it is {expected}"
        if parameter.default is not parameter.empty:
            return f"{hook} never gets {parameter.name}, as it has a default; remove that"
    return None
