"""Values from Python objects, TOML tables and environment variables.

Only values of an attrs object that differ from its class's defaults count as given, because an
explicit default cannot be distinguished from an implicit one.

A variable is named ``LAKELOG_KEY``, or ``LAKELOG_SECTION__KEY`` for a plugin: upper case, with
``_`` for the ``-`` of a section's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from lakelog.settings.catalog import CORE, Catalog, Given, default_of, keys_of
from lakelog.settings.effective import Settings

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
    return isinstance(value, Mapping) or attrs.has(type(value))


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
