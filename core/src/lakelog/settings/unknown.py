"""Errors for keys and sections that do not exist; they name the nearest existing ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lakelog.errors import SettingsError, UnknownSetting
from lakelog.settings.catalog import CORE, Catalog, Given
from lakelog.settings.formats import Formats
from lakelog.settings.sources import variable_name

REMOVED: Final[Mapping[str, str]] = {
    "services": "this setting was removed, because dispatching is compiled and runs in the owner "
    "or in `lakelog serve`; delete it"
}
"""Sections of former versions, with the reason for their removal and a remedy."""


def complaint(given: Given, catalog: Catalog, formats: Formats) -> SettingsError:
    """The error for a value whose key or section does not exist."""
    if given.section == CORE and given.key in catalog.classes:
        what = f"{given.key!r} is a section, not a key: give it a table, [{given.key}]"
        return SettingsError(what, key=given.dotted, source=given.origin)
    known = given.section in catalog.classes
    what = _unknown_key(given, catalog, formats) if known else _unknown_section(given, catalog)
    return UnknownSetting(what, key=given.dotted, source=given.origin)


def no_section(section: str, catalog: Catalog) -> str:
    """Say that no installed plugin has ``section``, or why it was removed."""
    installed = ", ".join(catalog.sections) or "none"
    missing = f"no installed plugin has a section [{section}]; installed: {installed}"
    return REMOVED.get(section, missing)


def _unknown_section(given: Given, catalog: Catalog) -> str:
    what = no_section(given.section, catalog)
    if given.section in REMOVED:
        return what
    near = _nearest(given.section, catalog.sections)
    meant = f"did you mean [{near}]? If not, " if near else ""
    return f"{what}; {meant}install the plugin that owns it"


def _unknown_key(given: Given, catalog: Catalog, formats: Formats) -> str:
    """Suggest another system's key translated, the key in another section, or the most similar."""
    known = catalog.dotted_keys()
    translated = (key for key in formats.translate_key(given.key) if key in known)
    elsewhere = (key for key in known if key.rpartition(".")[2] == given.key)
    near = (*translated, *elsewhere, _nearest(given.dotted, known) or known[0])[0]
    also = f" ({variable_name(near)})" if given.text else ""
    return f"there is no such setting; the nearest known one is {near}{also}"


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """The most similar of ``known``, however far it is."""
    import difflib  # only for an error

    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.0)), None)
