"""The strategies that are available to one store, by kind and name; immutable after open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs

from lakelog.files.filesystem import RealFileSystem
from lakelog.registry.collection import Offered, collect
from lakelog.registry.conformance import check_object
from lakelog.registry.discovery import (
    Distribution,
    ErrorT,
    PluginSource,
    builtin_source,
    given_sources,
    installed_sources,
    search_path,
    switched_off,
)
from lakelog.registry.events import Events
from lakelog.registry.loading import Plugged, plug_in
from lakelog.registry.missing import kind_text, missing
from lakelog.settings.catalog import Catalog, required
from lakelog.settings.effective import Settings
from lakelog.settings.formats import Formats
from lakelog.settings.model import StoreSettings
from lakelog_format.arguments import wrong_type
from lakelog_interfaces.errors import BadStrategy, LakelogError, ReadFailed, StoreError
from lakelog_interfaces.strategies import PROTOCOLS, Context, Factory, Kind, NoSettings


@attrs.frozen
class Registry:
    """The strategies of one store's plugins, by name.

    :ivar plugged: the plugins, with pluggy's manager
    :ivar offered: the factory of every strategy, with its plugin, by name
    :ivar events: delivers lifecycle events to plugins
    """

    plugged: Plugged
    offered: Mapping[str, Offered]
    events: Events
    _are_given: bool = False

    @classmethod
    def load(
        cls, plugins: Sequence[object] | Registry | None, environ: Mapping[str, str]
    ) -> Registry:
        """Load and check plugins; accesses no file of a store.

        :param plugins: plugins to use beside the core's own and, if installed, ``processes``,
            ``queues`` and ``retention``; ``None`` uses all installed plugins; a registry is
            returned unchanged
        :param environ: its ``LAKELOG_DISABLE_PLUGINS`` names plugins to switch off

        Raises :class:`~lakelog.errors.PluginError`, and ``TypeError`` for a wrong argument.
        """
        if isinstance(plugins, Registry):
            return plugins
        off = switched_off(environ)
        if plugins is None:
            return _installed(search_path(), off)
        if isinstance(plugins, str) or not isinstance(plugins, Iterable):
            raise wrong_type("plugins", plugins, "a list of modules or objects, or None for all")
        return cls._of(given_sources(plugins), off, given=True)

    @classmethod
    def _of(cls, sources: Iterable[PluginSource], off: Iterable[str], *, given: bool) -> Registry:
        plugged = plug_in([builtin_source(), *sources], off)
        return cls(plugged, collect(plugged), Events(plugged), given)

    def sections(self) -> Mapping[str, type[Any]]:
        """The settings class of every strategy on offer, by name."""
        return {name: each.factory.settings for name, each in self.offered.items()}

    def installed(self, path: Path) -> Catalog:
        """The sections, formats and inferring functions of all plugins, for the store ``path``."""
        kind = Kind.SETTINGS_FORMAT
        context = Context(path, StoreSettings(), RealFileSystem())
        formats = Formats(
            self.names(kind),
            lambda name: self.make(kind, name, NoSettings(), context),
            lambda name, what: self.fault(kind, name, BadStrategy)(what),
        )
        infer = {name: each.factory.infer for name, each in self.offered.items()}
        return Catalog(self.sections(), formats, {name: it for name, it in infer.items() if it})

    def names(self, kind: Kind) -> tuple[str, ...]:
        """The names of all strategies of a kind, sorted."""
        return tuple(sorted(name for name, found in self._kinds().items() if found is kind))

    def factory(self, kind: Kind, name: str) -> Factory:
        """The factory of a kind and name; raises :class:`~lakelog.errors.MissingPlugin`."""
        return self._offered(kind, name).factory

    def package(self, kind: Kind, name: str) -> Distribution | None:
        """The package that provides a strategy, if known; raises like :meth:`factory`."""
        return self._offered(kind, name).source.package

    def make(self, kind: Kind, name: str, settings: object, context: Context) -> Any:
        """Build a strategy, and check that it implements its Protocol.

        Errors of lakelog propagate with a note. An ``OSError`` that names a file becomes a
        :class:`~lakelog.errors.StoreError`. Any other error becomes a
        :class:`~lakelog.errors.PluginError` that names the plugin. Also raises
        :class:`~lakelog.errors.MissingPlugin` and :class:`~lakelog.errors.BadStrategy`.
        """
        offered = self._offered(kind, name)
        made = _make(offered, settings, context)
        problem = check_object(made, PROTOCOLS[kind])
        if problem:
            raise offered.source.error(f"its {kind_text(kind)} {name!r}: {problem}", BadStrategy)
        return made

    def build(self, kind: Kind, name: str | None, settings: Settings, context: Context) -> Any:
        """Build the strategy ``name`` with its section of ``settings``; ``None`` without a name.

        Raises like :meth:`make`, and :class:`~lakelog.errors.SettingsError` if a required section
        is not set.
        """
        if name is None:
            return None
        cls = self.factory(kind, name).settings
        is_set = name in settings.sections or required(cls)
        return self.make(kind, name, settings.section(name) if is_set else cls(), context)

    def fault(self, kind: Kind, name: str, error: type[ErrorT]) -> Callable[[str], ErrorT]:
        """A function that builds errors about a strategy's failures after open."""
        source = self._offered(kind, name).source
        return lambda what: source.error(f"its {kind_text(kind)} {name!r} {what}", error)

    def _kinds(self) -> dict[str, Kind]:
        return {name: offered.factory.kind for name, offered in self.offered.items()}

    def _offered(self, kind: Kind, name: str) -> Offered:
        offered = self.offered.get(name)
        if offered is None or offered.factory.kind is not kind:
            left_out = installed_sources() if self._are_given else ()
            raise missing(kind, name, self._kinds(), self.plugged.off, left_out)
        return offered


@lru_cache(maxsize=4)
def _installed(_path: object, off: frozenset[str]) -> Registry:
    """The registry of the installed plugins, kept for later opens of this process.

    :param _path: the key of the cache beside ``off``; the result of :func:`.search_path`
    """
    return Registry._of(installed_sources(), off, given=False)


def _make(offered: Offered, settings: object, context: Context) -> object:
    source, factory = offered.source, offered.factory
    what = f"the {kind_text(factory.kind)} {factory.name!r}"
    try:
        return factory.make(settings, context)
    except LakelogError as error:
        error.add_note(f"raised while plugin {source.name!r} made a strategy")
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise _unusable(error, f"(plugin {source.name!r}, making {what})", context) from error
        raise source.error(f"making {what} failed with {type(error).__name__}: {error}") from error


def _unusable(error: OSError, where: str, context: Context) -> StoreError:
    """The error for a file that the system does not let a plugin use; not a fault of the plugin."""
    what = f"{error.strerror} {where}"
    if context.read_only:
        return ReadFailed(what, path=error.filename, error=error)
    return StoreError(what, path=error.filename)
