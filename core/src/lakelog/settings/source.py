"""What was given as ``settings=`` and ``broker_conf=``, each in its place among the sources."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import attrs

from lakelog.errors import SettingsError
from lakelog.settings.arguments import from_object, is_table
from lakelog.settings.catalog import Catalog
from lakelog.settings.formats import BROKER_CONF, Formats, Translation
from lakelog.settings.given import CORE, Given, Layer
from lakelog.settings.resource import as_embedded
from lakelog.settings.tomlfile import from_toml, read_bytes
from lakelog.settings.unknown import no_section


@attrs.frozen
class StorePlace:
    """Where a store is opened.

    :ivar cwd: what relative names start from
    :ivar modules: the imported modules, by name
    """

    cwd: Path
    modules: Mapping[str, ModuleType]


@attrs.frozen
class Sourced:
    """What was given, by its rank; all but one or two are empty."""

    arguments: Layer = attrs.field(factory=Layer)
    file: Layer = attrs.field(factory=Layer)
    broker_conf: Layer = attrs.field(factory=Layer)
    resource: Layer = attrs.field(factory=Layer)


def from_source(
    source: object, broker_conf: Path | None, place: StorePlace, catalog: Catalog, formats: Formats
) -> Sourced:
    """Sort ``settings=`` by what it is, and read it."""
    sourced = Sourced()
    if broker_conf is not None:
        layer = _translated(place.cwd / broker_conf, BROKER_CONF, catalog, formats)
        sourced = Sourced(broker_conf=layer)
    resource = as_embedded(source, place.modules)
    if source is None:
        return sourced
    if is_table(source) and resource is None:
        return attrs.evolve(sourced, arguments=from_object(source, catalog, "argument settings"))
    if resource is not None:
        layer = from_toml(resource.file, catalog, resource.origin)
        return attrs.evolve(sourced, resource=layer)
    return attrs.evolve(sourced, file=_from_file(source, place, catalog, formats))


def _from_file(source: object, place: StorePlace, catalog: Catalog, formats: Formats) -> Layer:
    if not isinstance(source, str | os.PathLike):
        what = f"settings= is a {type(source).__name__}"
        raise SettingsError(f"{what}; give a mapping, an attrs object, a file or a resource")
    file = place.cwd / Path(source)
    name = formats.of_file(file)
    if name is not None:
        return _translated(file, name, catalog, formats)
    return from_toml(file, catalog, str(file))


def _translated(file: Path, name: str, catalog: Catalog, formats: Formats) -> Layer:
    origin = str(file)
    return as_layer(formats.read(name, read_bytes(file, origin), origin), origin, catalog)


def as_layer(translation: Translation, origin: str, catalog: Catalog) -> Layer:
    """A file of another system as one of our sources; what nobody has here is unused."""
    givens, notes = [], dict(translation.unused)
    for each in translation.values:
        section, _, key = each.target.rpartition(".")
        given = Given(section or CORE, key, each.value, f"{origin} ({', '.join(each.keys)})")
        if catalog.knows(given):
            givens.append(given)
        else:
            notes |= dict.fromkeys(each.keys, _no_target(given, catalog))
    return Layer(tuple(givens), {key: f"{origin}: {note}" for key, note in notes.items()})


def _no_target(given: Given, catalog: Catalog) -> str:
    if given.section in catalog.classes:
        return f"{given.dotted} is not a setting of the plugin that is installed"
    return f"{given.dotted}: {no_section(given.section, catalog)}"
