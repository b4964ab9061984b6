"""Finds plugins: the core's own, those given to ``open``, and installed ones by entry points."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from lakelog_interfaces.errors import PluginError
from lakelog_interfaces.hookspecs import PROJECT

if TYPE_CHECKING:
    from importlib.metadata import PackageMetadata

BUILTIN: Final = "builtin"
"""The name of the core's own plugin."""

DISABLE_VARIABLE: Final = "LAKELOG_DISABLE_PLUGINS"

_OF_EVERY_STORE: Final = ("processes", "queues", "retention")
"""Used even if plugins are given to ``open``, since every store may need them."""

ErrorT = TypeVar("ErrorT", bound=PluginError)


@attrs.frozen
class Distribution:
    """An installed package, such as ``lakelog-mmap 1.2``."""

    name: str
    version: str

    def __str__(self) -> str:
        """Name and version, as errors print them."""
        return f"{self.name} {self.version}".rstrip()

    @property
    def normalized_name(self) -> str:
        """The name normalised as in PEP 503; equal results mean the same package."""
        return re.sub(r"[-_.]+", "-", self.name).lower()


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
    return PluginSource(BUILTIN, partial(import_module, "lakelog.registry.builtin.plugin"))


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
            given.insert(0, PluginSource(name, load, distribution(f"lakelog-{name}")))
    return given


def installed_sources() -> list[PluginSource]:
    """Sources of the plugins in the entry point group ``lakelog``, sorted by name."""
    from importlib.metadata import entry_points  # not needed if plugins are given

    found = (
        PluginSource(point.name, point.load, _package(point.dist.metadata) if point.dist else None)
        for point in entry_points(group=PROJECT)
    )
    return sorted(found, key=lambda source: (source.name, str(source.distribution)))


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


def _package(metadata: PackageMetadata) -> Distribution | None:
    if "Name" not in metadata or "Version" not in metadata:
        return None
    return Distribution(metadata["Name"], metadata["Version"])


@cache
def distribution(name: str) -> Distribution | None:
    """The package ``name``, cached at the first call: later versions on disk are not loaded."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Distribution(name, version(name))
    except PackageNotFoundError:
        return None


def switched_off(environ: Mapping[str, str]) -> frozenset[str]:
    """Names of plugins that the environment switches off."""
    listed = environ.get(DISABLE_VARIABLE, "").split(",")
    return frozenset(name.strip() for name in listed if name.strip())


def _given(plugin: object) -> PluginSource:
    name = getattr(plugin, "__name__", None)
    return PluginSource(
        name if isinstance(name, str) else type(plugin).__qualname__, lambda: plugin
    )
