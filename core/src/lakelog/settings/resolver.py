"""All sources to one :class:`Settings`: the strongest that gives a key wins, all keys are known."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lakelog.files.filesystem import unreadable
from lakelog.settings.arguments import from_table
from lakelog.settings.catalog import Catalog, keys_of
from lakelog.settings.effective import DEFAULT, Settings
from lakelog.settings.environment import from_environment
from lakelog.settings.formats import Installed
from lakelog.settings.given import CORE, Given, dotted
from lakelog.settings.inferred import from_files
from lakelog.settings.merge import merge
from lakelog.settings.source import StorePlace, from_source
from lakelog.settings.structure import build, required
from lakelog.settings.tomlfile import from_pyproject, from_store


def resolve(
    path: Path,
    *,
    installed: Installed,
    arguments: Mapping[str, Any],
    source: object | None,
    broker_conf: Path | None,
    environ: Mapping[str, str],
    cwd: Path,
    tolerate_missing: bool,
) -> Settings:
    """Collect, merge and check the settings of the store in ``path``.

    :param installed: what plugins bring: sections, and formats of files
    :param arguments: values given by keyword
    :param source: what was given as ``settings=``: a mapping, an attrs object, a file or a resource
    :param broker_conf: a RocketMQ ``broker.conf``, which a plugin reads
    :param environ: the environment
    :param cwd: where to look for the host's ``pyproject.toml``, and what relative names of files
        start from
    :param tolerate_missing: sections of plugins that are not installed are reported, not refused
    :returns: frozen settings with their origins

    Raises :class:`~lakelog.errors.SettingsError`, and :class:`~lakelog.errors.ReadFailed` where a
    file that may hold some cannot be looked at, and :class:`~lakelog.errors.MissingPlugin` where no
    plugin reads the format of a file.
    """
    catalog, formats = Catalog.of(installed.sections), installed.formats
    try:
        given = from_source(source, broker_conf, StorePlace(cwd, sys.modules), catalog, formats)
        merged = merge(
            [
                from_table(arguments, catalog, "argument"),
                given.arguments,
                from_environment(environ, catalog),
                given.file,
                given.broker_conf,
                from_store(path, catalog),
                from_pyproject(cwd, catalog),
                given.resource,
            ],
            catalog,
            formats,
            tolerate_missing=tolerate_missing,
        )
    except OSError as error:
        raise unreadable(Path(error.filename or path), error) from error
    found = from_files(path, catalog, merged.chosen)
    return _effective(catalog, [*merged.chosen.values(), *found.givens], merged.unused)


def _effective(catalog: Catalog, chosen: Iterable[Given], unused: Mapping[str, str]) -> Settings:
    """Build every section, but those that nobody set and that have no complete defaults."""
    by_section: dict[str, dict[str, Given]] = {name: {} for name in catalog.classes}
    for given in chosen:
        by_section[given.section][given.key] = given
    built = {
        name: build(name, cls, by_section[name])
        for name, cls in catalog.classes.items()
        if by_section[name] or not required(cls)
    }
    origins = {
        dotted(name, key): by_section[name][key].origin if key in by_section[name] else DEFAULT
        for name in built
        for key in keys_of(catalog.classes[name])
    }
    return Settings(core=built.pop(CORE), sections=built, origins=origins, unused=unused)
