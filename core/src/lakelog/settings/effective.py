"""The effective settings: frozen, validated, and each with its origin.

Values come from Python objects, TOML tables and environment variables. Of an attrs object only
values that differ from its class's defaults count as given, because an explicit default cannot be
distinguished from an implicit one. A variable is named ``LAKELOG_KEY``, or ``LAKELOG_SECTION__KEY``
for a plugin: upper case, with ``_`` for the ``-`` of a section's name. Errors for keys and sections
that do not exist name the nearest existing ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import attrs

from lakelog.errors import SettingsError, UnknownSetting
from lakelog.hooks.kinds import StoreSettings
from lakelog.settings.catalog import CORE, Catalog, Given, default_of, dotted, keys_of, required

DEFAULT: Final = "default"
INFERRED: Final = "inferred from"


class Sections(Mapping[str, Any]):
    """The settings of plugins by section; one that no source sets is built when it is read.

    A section with a required key that is not set is absent.
    """

    def __init__(self, classes: Mapping[str, type[Any]], built: dict[str, Any]) -> None:
        """Keep ``built``, the sections that sources set; ``classes`` are those of all sections."""
        self._classes = classes
        self._built = built

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            cls = self._classes[name]
            if required(cls):
                raise KeyError(name)
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
    known = catalog.dotted_keys()
    translated = (key for key in catalog.formats.translate_key(given.key) if key in known)
    elsewhere = (key for key in known if key.rpartition(".")[2] == given.key)
    near = (*translated, *elsewhere, nearest(given.dotted, known, cutoff=0) or known[0])[0]
    also = f" ({variable_name(near)})" if given.is_text else ""
    return f"there is no such setting; the nearest known one is {near}{also}"


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar of ``known``, if any is at least so similar: 1.0 is equal."""
    from difflib import get_close_matches  # only for an error

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)
