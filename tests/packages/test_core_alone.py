"""With ``lakelog-core`` alone, put and scan work; what is missing is named with its package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.packages.environment import Environment, importable
from tests.packages.projects import PROJECTS, Project

NEEDS_AN_EXTRA = {
    *("lakelog.aio", "lakelog.arrow"),
    *("lakelog_broker.grpc", "lakelog_broker.pytest_plugin"),
    "lakelog_lake.sinks.iceberg_copies",
    *("lakelog_lake.sinks.iceberg_expiry", "lakelog_lake.sinks.iceberg_internals"),
    "lakelog_lake.tables.synced_io",
    *("lakelog_spark.micro_batches", "lakelog_spark.source", "lakelog_spark.verify"),
    "lakelog_spark.writing.writer",
}
"""Modules, and packages with all theirs, that need more than their distribution declares."""

PUT_AND_READ = """
import lakelog
with lakelog.open("store") as store:
    result = store.put(lakelog.Message("orders", b"hello", queue_id=0))
with lakelog.open("store") as store:
    (read,) = store.scan()
    assert (read.topic, read.body) == ("orders", b"hello"), read
    assert read.physical_offset == result.physical_offset
    try:
        store.get("orders", 0, 0)
    except AttributeError as error:
        print(error)
try:
    lakelog.Consumer
except ImportError as error:
    print(error)
"""

ANOTHER_WRITER = """
import os, lakelog
with lakelog.open("store") as store:
    here = store.put(lakelog.Message("t", b"", queue_id=0))
    if os.fork():
        os.wait()
    else:
        with lakelog.open("store") as other:
            there = other.put(lakelog.Message("t", b"", queue_id=0))
            print(other.role, here.queue_offset, there.queue_offset, flush=True)
        os._exit(0)
"""

MISSING = """
import json, pathlib, sys, lakelog
from lakelog.errors import MissingPlugin
for setting in json.loads(sys.argv[1]):
    try:
        lakelog.open("store", **setting)
    except MissingPlugin as error:
        print(error)
    assert not pathlib.Path("store").exists()
"""

STRATEGIES: Final[tuple[tuple[str, str | list[str], str], ...]] = (
    ("writer", "mmap", "lakelog-writers"),
    ("flush", "group-commit", "lakelog-flush"),
    ("dispatchers", ["consume-queue"], "lakelog-queues"),
    ("cleaner", "retention", "lakelog-retention"),
    ("disk_watcher", "psutil", "lakelog-retention"),
)
"""Of the plugins that come with lakelog: the setting, its value, and the package."""

ANOTHER_CLEANER = """
import types, lakelog
from lakelog.hooks.hookspecs import hookimpl
from lakelog.hooks import DeletionRate, Factory, Kind, NoSettings
cleaner = types.SimpleNamespace(
    pace=DeletionRate(), remove_empty_queues=False, choose=lambda segments, situation: []
)
class Plugin:
    @hookimpl
    def lakelog_cleaners(self):
        return [Factory(Kind.CLEANER, "mine", NoSettings, lambda settings, context: cleaner)]
with lakelog.open("store", plugins=[Plugin()], cleaner="mine") as store:
    print(store.delete_expired().deleted)
"""

INSTALLED = """
from importlib.metadata import distributions
print(*(found.name for found in distributions() if found.name.startswith("lakelog")))
"""


@pytest.fixture(scope="module")
def environment(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The core, and what it needs to run."""
    made = Environment.make(tmp_path_factory.mktemp("environment"))
    made.bring("lakelog-core", installed)
    return made


def test_the_core_is_alone(environment: Environment, tmp_path: Path) -> None:
    found = environment.run("-c", INSTALLED, cwd=tmp_path).split()
    assert sorted(found) == ["lakelog-core"]


def test_put_and_read_work(environment: Environment, tmp_path: Path) -> None:
    said = environment.run("-c", PUT_AND_READ, cwd=tmp_path)
    assert said.count("pip install lakelog-queues") == 2


def test_a_strategy_that_is_not_installed_names_its_package(
    environment: Environment, tmp_path: Path
) -> None:
    settings = json.dumps([{key: name} for key, name, _ in STRATEGIES])
    said = environment.run("-c", MISSING, settings, cwd=tmp_path).splitlines()
    for line, (_, name, package) in zip(said, STRATEGIES, strict=True):
        assert f"{''.join(name)!r} is installed: pip install {package}" in line


def test_a_cleaner_of_another_package_runs(environment: Environment, tmp_path: Path) -> None:
    assert environment.run("-c", ANOTHER_CLEANER, cwd=tmp_path).strip() == "()"


def test_another_process_writes_to_the_same_store(environment: Environment, tmp_path: Path) -> None:
    assert environment.run("-c", ANOTHER_WRITER, cwd=tmp_path).split() == ["attach", "0", "1"]


def test_a_file_of_rocketmqs_names_the_package_that_reads_it(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "broker.conf").write_text("maxMessageSize=77")
    settings = json.dumps([{key: "broker.conf"} for key in ("settings", "broker_conf")])
    said = environment.run("-c", MISSING, settings, cwd=tmp_path)
    assert said.count("'broker-conf' is installed: pip install lakelog-rocketmq") == 2


def test_without_the_command_line_one_line_says_what_to_install(
    environment: Environment, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="pip install lakelog-tools") as failed:
        environment.run("-m", "lakelog", "verify", "store", cwd=tmp_path)
    assert "Traceback" not in str(failed.value)


def without_extras(project: Project) -> list[str]:
    named = ((each, {each, each.rpartition(".")[0]}) for each in project.modules)
    return [each for each, names in named if not names & NEEDS_AN_EXTRA]


def test_all_declare_what_an_import_of_their_modules_needs() -> None:
    wrong = []
    for project in PROJECTS:
        declares, checked = importable(project.name), without_extras(project)
        wrong += [
            (file, module)
            for file, module in project.imports("src", at_once=True)
            if project.module(file) in checked and module.partition(".")[0] not in declares
        ]
    assert wrong == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("project", PROJECTS, ids=str)
def test_every_module_imports_with_the_declared_dependencies_alone(
    installed: Path, tmp_path_factory: pytest.TempPathFactory, project: Project
) -> None:
    made = Environment.make(tmp_path_factory.mktemp("alone"))
    made.bring(project.name, installed)
    program = "import sys, importlib; [importlib.import_module(each) for each in sys.argv[1:]]"
    made.run("-c", program, *without_extras(project), cwd=tmp_path_factory.mktemp("cwd"))
