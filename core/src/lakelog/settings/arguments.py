"""Values from Python objects: keyword arguments, mappings (TOML tables too) and attrs objects.

Only values of an attrs object that differ from its class's defaults count as given, because an
explicit default cannot be distinguished from an implicit one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from lakelog.settings.catalog import Catalog, default_of, keys_of
from lakelog.settings.effective import Settings
from lakelog.settings.given import CORE, Given, Layer


def from_table(table: Mapping[str, Any], catalog: Catalog, origin: str) -> Layer:
    """Core keys at the top level, and a table or object for each section.

    ``"timed.flush_interval_ms"`` is also accepted as a key.
    """
    return Layer(tuple(_from_items(table, catalog, origin)))


def from_object(given: object, catalog: Catalog, origin: str) -> Layer:
    """The values of a mapping, of :class:`Settings`, or of an attrs object."""
    if isinstance(given, Settings):
        return _from_settings(given)
    if isinstance(given, Mapping):
        return from_table(given, catalog, origin)
    section = catalog.section_of(type(given))
    if section is None:
        return from_table(table_of(given), catalog, origin)
    return Layer(tuple(_in_section(section, table_of(given), origin)))


def is_table(value: object) -> bool:
    """Whether ``value`` holds the keys of a section."""
    return isinstance(value, Mapping) or attrs.has(type(value))


def table_of(value: Any) -> Mapping[str, Any]:
    """The keys and values of a mapping, or of an attrs object without its defaults."""
    if isinstance(value, Mapping):
        return value
    fields = keys_of(type(value))
    values = {key: getattr(value, field.name) for key, field in fields.items()}
    return {key: now for key, now in values.items() if now != default_of(fields[key], value)}


def _from_items(table: Mapping[str, Any], catalog: Catalog, origin: str) -> Iterator[Given]:
    for name, value in table.items():
        section = catalog.section_named(name)
        if is_table(value) and (section or name not in keys_of(catalog.classes[CORE])):
            yield from _in_section(section or name, table_of(value), origin)
        elif "." in name:
            head, _, key = name.partition(".")
            yield Given(catalog.section_named(head) or head, key, value, origin)
        else:
            yield Given(CORE, name, value, origin)


def _in_section(section: str, table: Mapping[str, Any], origin: str) -> Iterator[Given]:
    if not table and section != CORE:
        yield Given(section, "", None, origin)
    for key, value in table.items():
        yield Given(section, key, value, origin)


def _from_settings(settings: Settings) -> Layer:
    """Explicitly set values of another store's settings, without those inferred from its files."""
    return Layer(
        tuple(
            Given(section, key, value, settings.origins[name])
            for name, (section, key, value) in settings.values().items()
            if settings.is_chosen(name)
        )
    )
