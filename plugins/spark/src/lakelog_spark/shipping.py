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

from lakelog_spark import sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PACKAGES: Final = {
    "lakelog-core": ("lakelog",),
    "lakelog-testing": (),
    "lakelog-tools": ("lakelog_cli", "lakelog_daemon", "lakelog_doctor"),
}
"""Packages of the distributions whose package has another name than they."""

_NAME: Final = "lakelog.zip"

_PATH: Final = "PYTHONPATH"


def ship(session: SparkSession) -> None:
    """Make lakelog and its plugins available to the executors of ``session``.

    To be called before formats are registered: a format that was registered earlier does not
    include the file.
    """
    if not sessions.is_connect(session):
        context = session.sparkContext  # serves the file from its path until it stops
        path = str(write_zip(Path(str(context._temp_dir)) / _NAME))
        context.addPyFile(path)
        # The process that plans streams runs in the executors' Python, but without that file.
        environ = context.environment
        environ[_PATH] = os.pathsep.join(filter(None, (environ.get(_PATH), path)))
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
        if os.path.basename(archive).startswith(("pyspark", "py4j", "spark-core")):
            sys.path_importer_cache.pop(path, None)


def write_zip(path: Path) -> Path:
    """Write the zip file, also usable for ``spark-submit --py-files``; return ``path``.

    Plugins with compiled parts are left out: they must be installed. Raises ``OSError``.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for distribution, packages in _shipped().items():
            for file, name in _files(distribution, packages):
                target.writestr(name, file)
    return path


def _shipped() -> dict[Distribution, set[str]]:
    """Return the packages by distribution: lakelog's own, and those of other plugins."""
    ours = {each.name: each for each in distributions() if each.name.startswith("lakelog-")}
    shipped = {
        each: set(_PACKAGES.get(name, (name.replace("-", "_"),))) for name, each in ours.items()
    }
    for point in entry_points(group="lakelog"):
        if point.dist is not None and point.dist.name not in ours:
            shipped.setdefault(point.dist, set()).add(point.module.partition(".")[0])
    return shipped


def _files(distribution: Distribution, packages: set[str]) -> Iterator[tuple[bytes, str]]:
    """Yield content and name in the zip of each file; nothing if a part is compiled."""
    found = []
    for package in sorted(packages):
        spec = find_spec(package)
        for place in [] if spec is None else [*(spec.submodule_search_locations or [])]:
            paths = sorted(Path(place).rglob("*"))
            found += [(path, f"{package}/{path.relative_to(place)}") for path in paths]
    if not found or any(path.suffix in (".so", ".pyd") for path, _ in found):
        return
    for path, name in found:
        if path.is_file() and path.suffix != ".pyc":
            yield path.read_bytes(), name
    folder = f"{distribution.name.replace('-', '_')}-{distribution.version}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        text = distribution.read_text(name)
        if text is not None:
            yield text.encode(), f"{folder}/{name}"
