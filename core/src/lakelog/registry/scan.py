"""Finds entry points by reading ``entry_points.txt`` of installed packages.

Equivalent to ``importlib.metadata.entry_points(group=...)``, without the 30 ms that importing
``importlib.metadata`` costs at every start: directories on the path are read here. The library is
used for files on the path (zip files; Spark adds its own), and for everything if another finder
provides distributions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder

import attrs

from lakelog.registry.metadata import (
    Distribution,
    metadata_name,
    normalized_name,
    read_distribution,
)


@attrs.frozen
class EntryPoint:
    """One line of a group of entry points.

    :ivar name: left of the equals sign
    :ivar value: right of it: ``module`` or ``module:attribute``
    :ivar distribution: the package that declares it
    """

    name: str
    value: str
    distribution: Distribution


def entry_points(group: str, path: Sequence[str]) -> list[EntryPoint]:
    """Find the entry points of ``group`` along ``path``, sorted by name.

    If a package is found twice, the first one on the path wins, as for imports.
    """
    found = _from_library(group, path, set()) if _has_other_finder() else _from_path(group, path)
    return sorted(found, key=lambda point: (point.name, str(point.distribution)))


def installed(name: str, path: Sequence[str]) -> Distribution | None:
    """The first package called ``name`` (normalised) along ``path``; zip files are skipped."""
    for entry in dict.fromkeys(path):
        for folder in _metadata_folders(entry):
            if metadata_name(folder) == name:
                return read_distribution(folder)
    return None


def parse(text: str, group: str) -> Iterator[tuple[str, str]]:
    """Names and values in the section ``group`` of an ``entry_points.txt``."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif section == group and "=" in line and line[0] not in "#;":
            name, _, value = line.partition("=")
            yield name.strip(), value.partition("[")[0].strip()


def _from_path(group: str, path: Sequence[str]) -> Iterator[EntryPoint]:
    seen: set[str] = set()
    for entry in dict.fromkeys(path):
        if os.path.isfile(entry):
            yield from _from_library(group, [entry], seen)
            continue
        for folder in _metadata_folders(entry):
            name = metadata_name(folder)
            if name not in seen:
                seen.add(name)
                yield from _in_folder(group, folder)


def _in_folder(group: str, folder: str) -> Iterator[EntryPoint]:
    try:
        with open(os.path.join(folder, "entry_points.txt"), encoding="utf-8") as file:
            points = list(parse(file.read(), group))
    except OSError:
        return
    if points:
        distribution = read_distribution(folder)
        for name, value in points:
            yield EntryPoint(name, value, distribution)


def _metadata_folders(directory: str) -> list[str]:
    try:
        names = os.listdir(directory or ".")
    except OSError:
        return []
    return [
        os.path.join(directory or ".", name)
        for name in names
        if name.endswith((".dist-info", ".egg-info"))
    ]


def _has_other_finder() -> bool:
    return any(
        finder is not PathFinder and hasattr(finder, "find_distributions")
        for finder in sys.meta_path
    )


def _from_library(group: str, path: Sequence[str], seen: set[str]) -> Iterator[EntryPoint]:
    """Query the library, which takes 80 ms in a full environment; skips names in ``seen``."""
    from importlib.metadata import distributions

    for found in distributions(path=list(path)):
        name = found.metadata["Name"] or ""
        if normalized_name(name) not in seen:
            seen.add(normalized_name(name))
            for point in found.entry_points:
                if point.group == group:
                    yield EntryPoint(point.name, point.value, Distribution(name, found.version))
