"""Errors for keys and sections that nobody knows; they name the nearest that somebody does."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.errors import SettingsError, UnknownSetting
from lakelog.settings.catalog import Catalog
from lakelog.settings.environment import variable_name
from lakelog.settings.formats import Formats
from lakelog.settings.given import CORE, Given


def complaint(given: Given, catalog: Catalog, formats: Formats) -> SettingsError:
    """The error for a value whose key or section does not exist."""
    if given.section not in catalog.classes:
        return _unknown_section(given, catalog)
    if given.section == CORE and given.key in catalog.classes:
        what = f"{given.key!r} is a section, not a key: give it a table, [{given.key}]"
        return SettingsError(what, key=given.dotted, source=given.origin)
    return _unknown_key(given, catalog, formats)


def no_section(section: str, catalog: Catalog) -> str:
    """Say that no plugin that is installed owns ``section``."""
    installed = ", ".join(catalog.sections) or "none"
    return f"no installed plugin has a section [{section}]; installed: {installed}"


def _unknown_section(given: Given, catalog: Catalog) -> UnknownSetting:
    near = nearest(given.section, catalog.sections)
    hint = f"; did you mean [{near}]? If not, install" if near else "; install"
    what = f"{no_section(given.section, catalog)}{hint} the plugin that owns it"
    return UnknownSetting(what, key=given.dotted, source=given.origin)


def _unknown_key(given: Given, catalog: Catalog, formats: Formats) -> UnknownSetting:
    near = _suggestion(given, catalog, formats)
    also = f" ({variable_name(near)})" if given.text else ""
    what = f"there is no such setting; the nearest known one is {near}{also}"
    return UnknownSetting(what, key=given.dotted, source=given.origin)


def _suggestion(given: Given, catalog: Catalog, formats: Formats) -> str:
    """Another system's name translated, the key in another section, or the most similar one."""
    known = catalog.dotted_keys()
    translated = next((key for key in formats.translate_key(given.key) if key in known), None)
    if translated is not None:
        return translated
    elsewhere = [key for key in known if key.rpartition(".")[2] == given.key]
    return elsewhere[0] if elsewhere else nearest(given.dotted, known) or known[0]


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The most similar of ``known``, however far it is."""
    import difflib  # only for an error

    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return matches[0] if matches else None
