"""The effective settings: frozen, validated, and each with its origin.

Values come from Python objects, TOML tables and environment variables. Of an attrs object only
values that differ from its class's defaults count as given, because an explicit default cannot be
distinguished from an implicit one. A variable is named ``LAKELOG_KEY``, or ``LAKELOG_SECTION__KEY``
for a plugin: upper case, with ``_`` for the ``-`` of a section's name. Errors for keys and sections
that do not exist name the nearest existing ones.

The sections of the core are declared here; every plugin has its own class for its section, and may
read settings files in formats other than TOML.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import attrs
from attrs import field, validators

from lakelog.errors import (
    LakelogError,
    PluginError,
    SettingsError,
    UnknownSetting,
    raised_by_handler,
)
from lakelog.hooks.kinds import Infer, SettingsFormat, StoreSettings, Translation

BROKER_CONF: Final = "broker-conf"
"""The format of the file given as ``broker_conf=``."""

_TOML: Final = ".toml"

_KNOWN: Final[Mapping[str, str]] = {".conf": BROKER_CONF, ".properties": BROKER_CONF}
"""Formats by suffix for files that are never TOML; without the plugin, reading one is an error."""


class Formats(NamedTuple):
    """The formats on offer, each created when a file or an error requires it.

    :ivar names: all names, sorted
    :ivar make: returns a format by name; raises :class:`~lakelog.errors.PluginError`
    :ivar build_error: returns an error about a format, from its name and a text
    """

    names: tuple[str, ...]
    make: Callable[[str], SettingsFormat]
    build_error: Callable[[str, str], PluginError]

    def of_file(self, file: Path) -> str | None:
        """The name of the format of ``file`` by its suffix; ``None`` is TOML.

        Raises :class:`~lakelog.errors.SettingsError` if several formats have the suffix.
        """
        suffix = file.suffix
        if suffix == _TOML:
            return None
        found = [name for name in self.names if suffix in self.make(name).suffixes]
        if len(found) > 1:
            what = f"{' and '.join(found)} all read files whose names end with {suffix}"
            raise SettingsError(f"{what}; switch one of their plugins off", source=str(file))
        return found[0] if found else _KNOWN.get(suffix)

    def read(self, name: str, data: bytes, origin: str) -> Translation:
        """Translate a file in the format ``name``; raises like :attr:`make` and ``read``."""
        try:
            found: Any = self.make(name).read(data, origin)
        except LakelogError:
            raise
        except Exception as error:
            if raised_by_handler(error):
                raise
            what = f"failed to read {origin} with {type(error).__name__}: {error}"
            raise self.build_error(name, what) from error
        if not isinstance(found, Translation):
            raise self.build_error(name, f"read {origin} as {found!r}, which is no Translation")
        return found

    def translate_key(self, key: str) -> Iterator[str]:
        """Lakelog's names for an unknown key, according to all formats."""
        found = (self.make(name).translate_key(key) for name in self.names)
        return (target for target in found if target is not None)


@attrs.frozen(kw_only=True)
class AttachSettings:
    """The section ``attach``: several processes that append to one store.

    :ivar listen: whether other processes may write beside this one; ``false`` is mode ``exclusive``
    :ivar take_over: whether this process takes over the services if no process runs them
    :ivar reconnect_timeout_ms: how long another process may take to open or close the store
    :ivar on_fork: effect of a fork on an open store in the child: ``refuse`` makes it unusable,
        ``attach`` reopens it at its next use
    """

    listen: bool = True
    take_over: bool = True
    reconnect_timeout_ms: int = field(default=30_000, validator=validators.ge(0))
    on_fork: Literal["refuse", "attach"] = "refuse"


@attrs.frozen(kw_only=True)
class ServeSettings:
    """The section ``serve``: what ``lakelog serve`` runs beside the store, and how it stops.

    :ivar services: programs to run beside the store, each ``NAME=COMMAND``; the command is split
        like a shell command, without a shell
    :ivar stop_timeout_ms: longest duration of an orderly stop; services still running shortly
        before its end are killed
    :ivar hang_timeout_ms: a service hangs, and is killed, if a signal stops it for this long, or if
        it sends nothing for this long after ``WATCHDOG=1``; 0 is never
    :ivar restart_first_ms: first delay before a service that ended is restarted; doubled after each
        further end, with random variation
    :ivar restart_longest_ms: longest delay before a restart
    :ivar restart_settled_ms: a service that ran for this long restarts with ``restart_first_ms``
        again
    :ivar status_interval_ms: interval at which the status file is written
    """

    services: tuple[str, ...] = ()
    stop_timeout_ms: int = field(default=30_000, validator=validators.ge(1_000))
    hang_timeout_ms: int = field(default=30_000, validator=validators.ge(0))
    restart_first_ms: int = field(default=500, validator=validators.ge(1))
    restart_longest_ms: int = field(default=60_000, validator=validators.ge(1))
    restart_settled_ms: int = field(default=60_000, validator=validators.ge(1))
    status_interval_ms: int = field(default=1_000, validator=validators.ge(100))


@attrs.frozen(kw_only=True)
class MaintenanceSettings:
    """The section ``maintenance``: when disk space is freed, and what followers retain.

    :ivar first_round_ms: delay after opening before the cleaner and the disk-space watcher first
        run
    :ivar interval_ms: pause between the end of a round and the next one
    :ivar pin_expires_after_ms: a follower's pin that was not renewed for this long retains nothing;
        empty is never
    :ivar override_pins: whether segments are deleted that a follower still needs; otherwise they
        stay, and puts are refused once the disk is full
    """

    first_round_ms: int = field(default=60_000, validator=validators.ge(0))
    interval_ms: int = field(default=10_000, validator=validators.ge(1))
    pin_expires_after_ms: int | None = field(
        default=None, validator=validators.optional(validators.ge(1))
    )
    override_pins: bool = False


CORE: Final = ""
"""The section of the store's own settings, whose keys are at the top level."""

ATTACH: Final = "attach"

MAINTENANCE: Final = "maintenance"

SERVE: Final = "serve"

OWN_SECTIONS: Final[Mapping[str, type[Any]]] = {
    CORE: StoreSettings,
    ATTACH: AttachSettings,
    MAINTENANCE: MaintenanceSettings,
    SERVE: ServeSettings,
}
"""The settings classes of the core, by section."""

_FACTORY: Any = attrs.Factory  # a class, which the type stubs declare as a function


def dotted(section: str, key: str) -> str:
    """The dotted form of a key.

    >>> dotted("timed", "flush_interval_ms"), dotted(CORE, "writer")
    ('timed.flush_interval_ms', 'writer')
    """
    return ".".join(part for part in (section, key) if part)


class Given(NamedTuple):
    """One value from a source.

    :ivar section: the strategy whose section it belongs to, or :data:`CORE`
    :ivar key: its name there; empty if a section is named without keys
    :ivar value: the value, not yet validated
    :ivar origin: the source, for display
    :ivar is_text: whether the source has no types, so that ``true`` and ``4`` are strings
    :ivar unused: why the value has no effect, for a key of another system without a counterpart
    """

    section: str
    key: str
    value: object
    origin: str
    is_text: bool = False
    unused: str = ""

    @property
    def dotted(self) -> str:
        """The dotted key, for display."""
        return dotted(self.section, self.key)


def keys_of(cls: type[Any]) -> dict[str, attrs.Attribute[Any]]:
    """The fields of a settings class that can be set, by key."""
    return {field.alias or field.name: field for field in attrs.fields(cls) if field.init}


def required(cls: type[Any]) -> list[str]:
    """The keys without a default."""
    return [key for key, field in keys_of(cls).items() if field.default is attrs.NOTHING]


def default_of(field: attrs.Attribute[Any], instance: object = None) -> Any:
    """A field's default; ``attrs.NOTHING`` if there is none, or it needs an instance."""
    default: Any = field.default
    if not isinstance(default, _FACTORY):
        return default
    if default.takes_self:
        return attrs.NOTHING if instance is None else default.factory(instance)
    return default.factory()


class Catalog(NamedTuple):
    """All sections and keys of the core and of the plugins.

    :ivar sections: the settings class of every strategy, by name
    :ivar formats: readers of files other than TOML
    :ivar inferring: by section, the function that infers settings from the files of a store
    :ivar blaming: gives errors of a section's class or function the name of its plugin; called
        with the section and with what is called
    """

    sections: Mapping[str, type[Any]]
    formats: Formats
    inferring: Mapping[str, Infer] = MappingProxyType({})
    blaming: Callable[[str, str], AbstractContextManager[None]] = lambda _section, _what: (
        nullcontext()
    )

    @property
    def classes(self) -> Mapping[str, type[Any]]:
        """The settings classes of all sections by name; the core's is :data:`CORE`."""
        return ChainMap(dict(OWN_SECTIONS), self.sections)  # type: ignore[arg-type]  # the stubs want a MutableMapping; nothing writes

    @property
    def names(self) -> list[str]:
        """The names of all sections but the core's, sorted."""
        return sorted(name for name in self.classes if name != CORE)

    def knows(self, given: Given) -> bool:
        """Whether the key of ``given`` exists."""
        cls = self.classes.get(given.section)
        return cls is not None and given.key in keys_of(cls)

    def section_named(self, spelling: str) -> str | None:
        """The section for a spelling in any case, with ``_`` or ``-``; ``None`` if unknown."""
        wanted = spelling.lower().replace("_", "-")
        return wanted if wanted in self.names else None


DEFAULT: Final = "default"

INFERRED: Final = "inferred from"


class Sections(Mapping[str, Any]):
    """The settings of plugins by section; one that no source sets is built when it is read.

    A section with a required key that is not set is absent.
    """

    def __init__(self, catalog: Catalog, built: dict[str, Any]) -> None:
        """Keep ``built``, the sections that sources set; ``catalog`` has all sections."""
        self._classes = catalog.classes
        self._blaming = catalog.blaming
        self._built = built

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            cls = self._classes[name]
            if required(cls):
                raise KeyError(name)
            with self._blaming(name, "the default settings"):
                self._built[name] = cls()
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._classes if name != CORE and name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Origins(dict[str, str]):
    """The origin of each value by dotted key, :data:`DEFAULT` for all others."""

    def __missing__(self, _name: str) -> str:
        return DEFAULT


class Settings(NamedTuple):
    """The settings from which a store is built.

    :ivar core: the store's own settings
    :ivar sections: the settings of every plugin, by section name; a section with a required key is
        absent until one of its keys is set
    :ivar origins: origin of each value, by dotted key
    :ivar unused: keys of sources that have no effect, with the reason
    """

    core: StoreSettings
    sections: Mapping[str, Any] = MappingProxyType({})
    origins: Origins = Origins()  # never changed
    unused: Mapping[str, str] = MappingProxyType({})

    def section(self, name: str) -> Any:
        """The settings of the strategy ``name``, an instance of its own class.

        Raises :class:`~lakelog.errors.SettingsError` if the section is absent.
        """
        if name not in self.sections:
            what = f"section [{name}] is not set, or no installed plugin has it"
            raise SettingsError(f"{what}; set its keys that have no default")
        return self.sections[name]

    def values(self) -> dict[str, tuple[str, str, Any]]:
        """Section, key and value of each setting, by dotted key."""
        return {
            dotted(section, key): (section, key, getattr(instance, field.name))
            for section, instance in {CORE: self.core, **self.sections}.items()
            for key, field in keys_of(type(instance)).items()
        }

    def is_chosen(self, name: str) -> bool:
        """Whether the dotted key ``name`` was set explicitly, not by a default or from files."""
        origin = self.origins[name]
        return origin != DEFAULT and not origin.startswith(INFERRED)


PREFIX: Final = "LAKELOG_"

NOT_SETTINGS: Final = frozenset({"LAKELOG_DISABLE_PLUGINS"})
"""Variables with the prefix that are not settings."""


def from_table(table: Mapping[str, Any], catalog: Catalog, origin: str) -> Iterator[Given]:
    """Yield the values of a table: core keys, and a table or object for each section.

    ``"timed.flush_interval_ms"`` is also accepted as a key.
    """
    for name, value in table.items():
        section = catalog.section_named(name)
        if is_table(value) and (section or name not in keys_of(catalog.classes[CORE])):
            yield from _in_section(section or name, value, origin)
        elif "." in name:
            head, _, key = name.partition(".")
            yield Given(catalog.section_named(head) or head, key, value, origin)
        else:
            yield Given(CORE, name, value, origin)


def from_object(given: object, catalog: Catalog, origin: str) -> Iterator[Given]:
    """Yield the values of a mapping, of :class:`Settings`, or of an attrs object.

    From the :class:`Settings` of another store, only values that were set explicitly are used.
    """
    if isinstance(given, Settings):
        for name, (section, key, value) in given.values().items():
            if given.is_chosen(name):
                yield Given(section, key, value, given.origins[name])
        return
    names = [name for name, cls in catalog.classes.items() if cls is type(given)]
    if names:
        yield from _in_section(names[0], given, origin)
    else:
        yield from from_table(_table_of(given), catalog, origin)


def from_environment(environ: Mapping[str, str], catalog: Catalog) -> Iterator[Given]:
    """Yield the values of all variables that start with :data:`PREFIX`."""
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            head, is_in_section, tail = name.removeprefix(PREFIX).lower().partition("__")
            section, key = CORE, head
            if is_in_section:
                section, key = catalog.section_named(head) or head.replace("_", "-"), tail
            yield Given(section, key, text, f"environment {name}", is_text=True)


def variable_name(dotted: str) -> str:
    """The variable that sets a dotted key.

    >>> variable_name("group-commit.sync_flush_timeout_ms")
    'LAKELOG_GROUP_COMMIT__SYNC_FLUSH_TIMEOUT_MS'
    """
    return PREFIX + dotted.replace(".", "__").replace("-", "_").upper()


def is_table(value: object) -> bool:
    """Whether ``value`` holds the keys of a section."""
    return isinstance(value, Mapping | Settings) or attrs.has(type(value))


def _table_of(value: Any) -> Mapping[str, Any]:
    """The keys and values of a mapping, or of an attrs object without its defaults."""
    if isinstance(value, Mapping):
        return value
    fields = keys_of(type(value))
    values = {key: getattr(value, field.name) for key, field in fields.items()}
    return {key: now for key, now in values.items() if now != default_of(fields[key], value)}


def _in_section(section: str, given: object, origin: str) -> Iterator[Given]:
    table = _table_of(given)
    if not table and section != CORE:
        yield Given(section, "", None, origin)
    for key, value in table.items():
        yield Given(section, key, value, origin)


def unknown_key_error(given: Given, catalog: Catalog) -> SettingsError:
    """The error for a value whose key or section does not exist."""
    if given.section == CORE and given.key in catalog.classes:
        what = f"{given.key!r} is a section, not a key: give it a table, [{given.key}]"
        return SettingsError(what, key=given.dotted, source=given.origin)
    known = given.section in catalog.classes
    what = _unknown_key(given, catalog) if known else _unknown_section(given, catalog)
    return UnknownSetting(what, key=given.dotted, source=given.origin)


def no_section(section: str, catalog: Catalog) -> str:
    """Say that no installed plugin has ``section``."""
    installed = ", ".join(catalog.names) or "none"
    return f"no installed plugin has a section [{section}]; installed: {installed}"


def _unknown_section(given: Given, catalog: Catalog) -> str:
    what = no_section(given.section, catalog)
    near = nearest(given.section, catalog.names, cutoff=0)
    meant = f"did you mean [{near}]? If not, " if near else ""
    return f"{what}; {meant}install the plugin that owns it"


def _unknown_key(given: Given, catalog: Catalog) -> str:
    """Suggest another system's key translated, the key in another section, or the most similar."""
    known = [dotted(name, key) for name, cls in catalog.classes.items() for key in keys_of(cls)]
    translated = (key for key in catalog.formats.translate_key(given.key) if key in known)
    elsewhere = (key for key in known if key.rpartition(".")[2] == given.key)
    near = (*translated, *elsewhere, nearest(given.dotted, known, cutoff=0) or known[0])[0]
    also = f" ({variable_name(near)})" if given.is_text else ""
    return f"there is no such setting; the nearest known one is {near}{also}"


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar of ``known``, if any is at least so similar: 1.0 is equal."""
    from difflib import get_close_matches  # only for an error

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)
