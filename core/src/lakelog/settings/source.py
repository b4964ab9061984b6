"""What was given as ``settings=`` and ``broker_conf=``, each in its place among the sources."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

import attrs

from lakelog.errors import SettingsError
from lakelog.settings.arguments import from_object, is_table
from lakelog.settings.catalog import Catalog
from lakelog.settings.given import Layer
from lakelog.settings.resource import as_embedded
from lakelog.settings.tomlfile import from_toml

PROPERTIES: Final = (".conf", ".properties")
"""How names of files in RocketMQ's format end; all others are TOML."""


@attrs.frozen
class Place:
    """Where a store is opened.

    :ivar path: the store directory
    :ivar cwd: what relative names start from
    :ivar modules: the imported modules, by name
    """

    path: Path
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
    source: object, place: Place, catalog: Catalog, broker_conf: Path | None
) -> Sourced:
    """Sort ``settings=`` by what it is, and read it."""
    sourced = Sourced()
    if broker_conf is not None:
        sourced = Sourced(broker_conf=_properties(broker_conf, place, catalog))
    resource = as_embedded(source, place.modules)
    if source is None:
        return sourced
    if is_table(source) and resource is None:
        return attrs.evolve(sourced, arguments=from_object(source, catalog, "argument settings"))
    if resource is not None:
        layer = from_toml(resource.file, catalog, resource.origin)
        return attrs.evolve(sourced, resource=layer)
    return attrs.evolve(sourced, file=_from_file(source, place, catalog))


def _from_file(source: object, place: Place, catalog: Catalog) -> Layer:
    if not isinstance(source, str | os.PathLike):
        what = f"settings= is a {type(source).__name__}"
        raise SettingsError(f"{what}; give a mapping, an attrs object, a file or a resource")
    file = place.cwd / Path(source)
    if file.suffix in PROPERTIES:
        return _properties(file, place, catalog)
    return from_toml(file, catalog, str(file))


def _properties(file: Path, place: Place, catalog: Catalog) -> Layer:
    from lakelog.settings.broker_conf import from_broker_conf  # rarely given

    return from_broker_conf(place.cwd / file, place.path, catalog)
