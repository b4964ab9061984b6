"""Sends lakelog to executors whose Python lacks it: one zip file, with plugins.

The dependencies (NumPy, PyArrow and others, which are not pure Python) must be present in the
Python of the executors, or in an environment given by ``--archives``. The zip file contains the
packages with their entry points, so that plugins are found as if installed.

In an executor, :func:`clear_importer_cache` makes the start of each task cheap.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions, entry_points
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from zipimport import zipimporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GROUP: Final = "lakelog"
_CORE: Final = {
    "lakelog-core": "lakelog",
    "lakelog-format": "lakelog_format",
    "lakelog-interfaces": "lakelog_interfaces",
}
"""The core and the libraries below it, which have no entry points: package by distribution."""
_NAME: Final = "lakelog.zip"
_PATH: Final = "PYTHONPATH"
_COMPILED: Final = (".so", ".pyd")
_SPARKS_OWN: Final = ("pyspark", "py4j", "spark-core")
_METADATA: Final = ("METADATA", "entry_points.txt")


def ship(session: SparkSession) -> None:
    """Make lakelog and its plugins available to the executors of ``session``.

    To be called before formats are registered: a format that was registered earlier does not
    include the file.
    """
    context = None if _is_remote(session) else session.sparkContext
    if context is not None:  # serves the file from its path until it stops
        path = str(write_zip(Path(str(context._temp_dir)) / _NAME))
        context.addPyFile(path)
        _show_to_planners(context.environment, path)
        return
    with TemporaryDirectory() as folder:
        session.addArtifacts(str(write_zip(Path(folder) / _NAME)), pyfile=True)


def clear_importer_cache() -> None:
    """Drop the importers of Spark's own zip files; to be called in each task.

    A reused worker begins each task with ``importlib.invalidate_caches()``. Each importer of a zip
    file then reads the directory of the whole file again, in 5 to 40 ms, and there is one importer
    for each of PySpark's sub-packages. The next import creates the importers that it needs.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        archive = importer.archive if isinstance(importer, zipimporter) else ""
        if os.path.basename(archive).startswith(_SPARKS_OWN):
            sys.path_importer_cache.pop(path, None)


def _show_to_planners(environ: dict[str, str], path: str) -> None:
    """Add the file to ``PYTHONPATH`` for the process that plans streams.

    That process runs in the executors' Python, but does not get the files of ``addPyFile``.
    """
    environ[_PATH] = os.pathsep.join(filter(None, (environ.get(_PATH), path)))


def _is_remote(session: SparkSession) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


def write_zip(path: Path) -> Path:
    """Write the zip file, also usable for ``spark-submit --py-files``; return ``path``.

    Plugins with compiled parts are left out: they must be installed. Raises ``OSError``.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for distribution, package in _shipped():
            for file, name in _files(distribution, package):
                target.writestr(name, file)
    return path


def _shipped() -> Iterator[tuple[Distribution, str]]:
    """Each distribution with its package: the core, its libraries and plugins."""
    by_name = {each.name: each for each in distributions()}
    yield from ((by_name[name], package) for name, package in _CORE.items())
    seen = set()
    for point in entry_points(group=_GROUP):
        package = point.module.partition(".")[0]
        if point.dist is not None and package not in seen:
            seen.add(package)
            yield by_name[point.dist.name], package


def _files(distribution: Distribution, package: str) -> Iterator[tuple[bytes, str]]:
    """Content and name in the zip of each file."""
    spec = find_spec(package)
    places = [] if spec is None else [*(spec.submodule_search_locations or [])]
    found = [(place, path) for place in places for path in sorted(Path(place).rglob("*"))]
    if not found or any(path.suffix in _COMPILED for _, path in found):
        return
    for place, path in found:
        if path.is_file() and path.suffix != ".pyc":
            yield path.read_bytes(), f"{package}/{path.relative_to(place)}"
    folder = f"{distribution.name.replace('-', '_')}-{distribution.version}.dist-info"
    for name in _METADATA:
        text = distribution.read_text(name)
        if text is not None:
            yield text.encode(), f"{folder}/{name}"
