"""With ``lakelog-core`` alone, put and read work; what is missing is named with its package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packages.environment import Environment, requirements_of

ROOT = Path(__file__).parents[2]

PUT_AND_READ = """
import lakelog
with lakelog.open("store") as store:
    result = store.put(lakelog.Message("orders", b"hello", queue_id=0))
with lakelog.open("store") as store:
    (read,) = store.scan()
    assert (read.topic, read.body) == ("orders", b"hello"), read
    assert read.physical_offset == result.physical_offset
"""

MISSING = """
import pathlib, lakelog
from lakelog.errors import MissingPlugin
try:
    lakelog.open("store", {key}="{name}")
except MissingPlugin as error:
    print(error)
assert not pathlib.Path("store").exists()
"""

INSTALLED = """
from importlib.metadata import distributions
print(*(found.name for found in distributions() if found.name.startswith("lakelog")))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The core, and what it needs to run."""
    made = Environment.make(tmp_path_factory.mktemp("environment"))
    made.link(*requirements_of(ROOT / "core"))
    made.install(ROOT / "core")
    return made


def test_the_core_is_alone(environment: Environment, tmp_path: Path) -> None:
    assert environment.run("-c", INSTALLED, cwd=tmp_path).split() == ["lakelog-core"]


def test_put_and_read_work(environment: Environment, tmp_path: Path) -> None:
    environment.run("-c", PUT_AND_READ, cwd=tmp_path)


@pytest.mark.parametrize(
    ("key", "name", "package"),
    [("writer", "mmap", "lakelog-mmap"), ("flush", "group-commit", "lakelog-flush")],
)
def test_a_strategy_that_is_not_installed_names_its_package(
    environment: Environment, tmp_path: Path, key: str, name: str, package: str
) -> None:
    said = environment.run("-c", MISSING.format(key=key, name=name), cwd=tmp_path)
    assert f"{name!r} is installed: pip install {package}" in said


def test_the_testing_extra_is_not_needed_to_import_the_core(
    environment: Environment, tmp_path: Path
) -> None:
    environment.run("-c", "import lakelog, lakelog_testing", cwd=tmp_path)
