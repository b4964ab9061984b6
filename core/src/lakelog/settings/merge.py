"""Several sources' values to one value for each key: the first layer that gives it wins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from lakelog.settings.catalog import Catalog
from lakelog.settings.given import CORE, Given, Layer
from lakelog.settings.unknown import complaint, no_section


@attrs.frozen
class Merged:
    """What is left of all sources.

    :ivar chosen: the winning values by section and key
    :ivar unused: what sources say that has no meaning here, and why
    """

    chosen: Mapping[tuple[str, str], Given]
    unused: Mapping[str, str]


def merge(layers: Iterable[Layer], catalog: Catalog, *, tolerate_missing: bool) -> Merged:
    """Merge ``layers``, the strongest first; a key that nobody knows is an error in any of them.

    :param tolerate_missing: keys of sections that nobody has are put into ``unused``
    """
    chosen: dict[tuple[str, str], Given] = {}
    unused: dict[str, str] = {}
    for layer in layers:
        unused.update(layer.unused)
        for given in layer.givens:
            if catalog.knows(given):
                chosen.setdefault((given.section, given.key), given)
            elif not _says_nothing(given, catalog):
                _refuse_or_note(given, catalog, unused if tolerate_missing else None)
    return Merged(chosen, unused)


def _says_nothing(given: Given, catalog: Catalog) -> bool:
    """An empty table of a section that somebody has."""
    return not given.key and given.section in catalog.classes


def _refuse_or_note(given: Given, catalog: Catalog, unused: dict[str, str] | None) -> None:
    if unused is None or given.section == CORE or given.section in catalog.classes:
        raise complaint(given, catalog)
    unused.setdefault(given.dotted, f"{given.origin}: {no_section(given.section, catalog)}")
