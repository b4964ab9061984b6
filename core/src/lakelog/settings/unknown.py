"""Errors for keys and sections that do not exist; they name the nearest existing ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from lakelog.settings.catalog import CORE, Catalog, Given
from lakelog.settings.sources import variable_name
from lakelog_interfaces.errors import SettingsError, UnknownSetting

REMOVED: Final[Mapping[str, str]] = {
    "services": "this setting was removed, because dispatching is compiled and runs in the owner "
    "or in `lakelog serve`; delete it"
}
"""Sections of former versions, with the reason for their removal and a remedy."""


def unknown_key_error(given: Given, catalog: Catalog) -> SettingsError:
    """The error for a value whose key or section does not exist."""
    if given.section == CORE and given.key in catalog.classes:
        what = f"{given.key!r} is a section, not a key: give it a table, [{given.key}]"
        return SettingsError(what, key=given.dotted, source=given.origin)
    known = given.section in catalog.classes
    what = _unknown_key(given, catalog) if known else _unknown_section(given, catalog)
    return UnknownSetting(what, key=given.dotted, source=given.origin)


def no_section(section: str, catalog: Catalog) -> str:
    """Say that no installed plugin has ``section``, or why it was removed."""
    installed = ", ".join(catalog.names) or "none"
    missing = f"no installed plugin has a section [{section}]; installed: {installed}"
    return REMOVED.get(section, missing)


def _unknown_section(given: Given, catalog: Catalog) -> str:
    what = no_section(given.section, catalog)
    if given.section in REMOVED:
        return what
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
