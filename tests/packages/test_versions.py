"""The versions of pyiceberg, deltalake and Arrow that are allowed: the oldest and the newest work.

The newest ones are those of this environment, in which all tests run. The oldest ones are
downloaded, and hide them.
"""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.packages.environment import PIP
from tests.packages.projects import BY_NAME, ROOT
from tests.support.required import missing

RANGES: Final = {
    each.name: each.specifier
    for project in ("lakelog-lake", "lakelog-spark")
    for each in map(Requirement, BY_NAME[project].requires)
    if each.name in {"deltalake", "pyiceberg", "pyspark"}
}
ADAPTER: Final = ROOT / "plugins/lake/src/lakelog_lake/sinks/iceberg_internals.py"
PRIVATE: Final = (
    ("pyiceberg.table", "Transaction", ("_apply", "_table", "_updates", "_requirements")),
    ("pyiceberg.table", "Table", ("_do_commit",)),
    ("pyiceberg.table.update", "UpdateTableMetadata", ("_transaction",)),
    ("pyiceberg.table.update.snapshot", "_FastAppendFiles", ("_process_manifests",)),
    ("pyiceberg.catalog", "MetastoreCatalog", ("_update_and_stage_table",)),
    ("pyiceberg.catalog.sql", "SqlCatalog", ("_convert_orm_to_iceberg",)),
    ("pyiceberg.catalog.glue", "GlueCatalog", ("_convert_glue_to_iceberg",)),
)
"""Module, name, and attributes that the adapter uses."""
OLDEST: Final = ("landing/test_changed_tables.py", "landing/test_landing.py")
CHOSEN: Final = "(iceberg or delta or files or catalog) and not (drop_and_add or rolled_back)"
"""Without what pyiceberg 0.10 cannot do: read a partition column dropped and added, roll back."""


def oldest(name: str) -> str:
    """The first version of a range."""
    (least,) = (each.version for each in RANGES[name] if each.operator == ">=")
    return least


@pytest.mark.parametrize("name", ["deltalake", "pyiceberg"])
def test_the_newest_version_that_is_allowed_is_the_one_of_the_tests(name: str) -> None:
    found = Version(version(name))
    assert found in RANGES[name]
    assert f"{found.major}.{found.minor + 1}" not in RANGES[name]
    assert f"{found.major + 1}.0" not in RANGES[name]


@pytest.mark.parametrize(("module", "name", "attributes"), PRIVATE)
def test_private_names_are_there(module: str, name: str, attributes: tuple[str, ...]) -> None:
    """A change of these ends landing with an error: better here."""
    found = getattr(import_module(module), name)
    bases = found.__mro__ if isinstance(found, type) else ()
    stated = {name for each in bases for name in inspect.get_annotations(each)}
    assert {*attributes} <= {*dir(found), *stated}


def test_only_the_adapter_imports_private_names() -> None:
    for path in ROOT.glob("plugins/*/src/**/*.py"):
        found = {
            each.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            and str(node.module).startswith(("pyiceberg", "deltalake"))
            for each in node.names
            if each.name.startswith("_")
        }
        known = {name for _, name, _ in PRIVATE if name.startswith("_")}
        assert found == (known if path == ADAPTER else set()), path


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tables_are_right_with_the_oldest_versions(tmp_path: Path) -> None:
    (arrow,) = (
        Requirement(each)
        for each in BY_NAME["lakelog-core"].table["optional-dependencies"]["arrow"]
    )
    wanted = [f"{name}=={oldest(name)}.*" for name in ("deltalake", "pyiceberg")]
    wanted[-1] = wanted[-1].replace("==", "[pyarrow,pyiceberg-core,sql-sqlite]==")
    wanted.append(f"pyarrow=={next(iter(arrow.specifier)).version}.*")
    options = ["--quiet", "--no-compile", "--target", str(tmp_path), "--only-binary=:all:"]
    pip = subprocess.run(
        [*PIP, "install", *options, *wanted], capture_output=True, text=True, check=False
    )
    if pip.returncode:
        missing(f"pip cannot download {wanted}: {pip.stderr[-500:]}")
    tests = [f"plugins/lake/tests/{each}" for each in OLDEST]
    options = [
        "-q",
        "-m",
        "not slow and not soak and not spark",
        "-p",
        "no:cacheprovider",
        "-k",
        CHOSEN,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-W", "default", *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
