"""Several sources' values to one value for each key: the first layer that gives it wins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from lakelog.settings.catalog import Catalog
from lakelog.settings.formats import Formats
from lakelog.settings.given import Given, Layer
from lakelog.settings.unknown import complaint, no_section


@attrs.frozen
class Merged:
    """What is left of all sources.

    :ivar chosen: the winning values by section and key
    :ivar unused: what sources say that has no meaning here, and why
    """

    chosen: Mapping[tuple[str, str], Given]
    unused: Mapping[str, str]


def merge(
    layers: Iterable[Layer], catalog: Catalog, formats: Formats, *, tolerate_missing: bool
) -> Merged:
    """Merge ``layers``, the strongest first; a key that nobody knows is an error in any of them.

    :param formats: know what keys of other systems are called here
    :param tolerate_missing: keys of sections that nobody has are put into ``unused``
    """
    chosen: dict[tuple[str, str], Given] = {}
    unused: dict[str, str] = {}
    for layer in layers:
        unused.update(layer.unused)
        for given in layer.givens:
            if catalog.knows(given):
                chosen.setdefault((given.section, given.key), given)
            elif tolerate_missing and given.section not in catalog.classes:
                note = f"{given.origin}: {no_section(given.section, catalog)}"
                unused.setdefault(given.dotted, note)
            elif not _says_nothing(given, catalog):
                raise complaint(given, catalog, formats)
    return Merged(chosen, unused)


def _says_nothing(given: Given, catalog: Catalog) -> bool:
    """An empty table of a section that somebody has."""
    return not given.key and given.section in catalog.classes
