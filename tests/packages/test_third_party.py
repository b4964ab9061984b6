"""A stranger's package: a renamed copy of ``plugins/_template``, installed beside the core."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.packages.environment import Environment
from tests.packages.projects import ROOT

RENAMED = {
    "lakelog-template": "acme-lakelog-pace",
    "lakelog_template": "acme_pace",
    'template = "': 'acme = "',
}

LIST = """
import json, os
from lakelog.registry import Registry
registry = Registry.load(None, os.environ)
rows = {}
for name, offered in registry.offered.items():
    package = offered.source.package
    rows[name] = [offered.source.name, package.name, package.version]
print(json.dumps(rows))
"""

PUT = """
import sys, lakelog, acme_pace.strategy
submit, seen = acme_pace.strategy.EveryN.submit, []
def spy(self, end_offset, wait):
    seen.append((self._appends, end_offset))
    return submit(self, end_offset, wait)
acme_pace.strategy.EveryN.submit = spy
with lakelog.open("store", flush="every-n", every_n={"appends": 2}) as store:
    ends = [store.put(lakelog.Message("orders", b"hello")).end_offset for _ in range(5)]
assert seen == [(2, end) for end in ends], (seen, ends)
"""

REFUSED = """
import lakelog, pathlib
from lakelog.errors import MissingPlugin
try:
    lakelog.open("refused", flush="every-n")
except MissingPlugin as error:
    print(error)
assert not pathlib.Path("refused").exists()
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template under another name, outside of the workspace."""
    folder = tmp_path_factory.mktemp("stranger") / "pace"
    leftovers = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(ROOT / "plugins" / "_template", folder, ignore=leftovers)
    (folder / "src" / "lakelog_template").rename(folder / "src" / "acme_pace")
    for file in filter(Path.is_file, folder.rglob("*")):
        text = file.read_text()
        for old, new in RENAMED.items():
            text = text.replace(old, new)
        file.write_text(text)
    return folder


@pytest.fixture(scope="module")
def environment(
    project: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """The stranger's package, and the distributions that it and its tests need."""
    made = Environment.make(tmp_path_factory.mktemp("environment"))
    made.bring("lakelog-testing", installed)
    made.install(project)
    return made


def test_nothing_of_the_template_is_left(project: Path) -> None:
    left = [file for file in project.rglob("*.*") if file.is_file() and "lakelog_t" in file.name]
    assert left == []
    assert "lakelog_template" not in (project / "pyproject.toml").read_text()


def test_it_is_found_by_its_entry_point_and_listed_with_its_distribution(
    environment: Environment, tmp_path: Path
) -> None:
    rows = json.loads(environment.run("-c", LIST, cwd=tmp_path))
    assert rows["every-n"] == ["acme", "acme-lakelog-pace", "0.1.0"]
    assert rows["file"][:2] == ["builtin", "lakelog-core"]


def test_it_can_be_switched_off(environment: Environment, tmp_path: Path) -> None:
    rows = environment.run("-c", LIST, cwd=tmp_path, LAKELOG_DISABLE_PLUGINS="acme")
    assert "every-n" not in json.loads(rows)


def test_settings_choose_it_and_set_what_is_its_own(
    environment: Environment, tmp_path: Path
) -> None:
    environment.run("-c", PUT, cwd=tmp_path)


def test_a_store_that_names_it_while_it_is_off_is_not_touched(
    environment: Environment, tmp_path: Path
) -> None:
    said = environment.run("-c", REFUSED, cwd=tmp_path, LAKELOG_DISABLE_PLUGINS="acme")
    assert "no flush strategy 'every-n' is installed" in said


def test_its_contract_kit_passes_there(environment: Environment, project: Path) -> None:
    said = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None
    assert int(passed[1]) >= 10
    assert "skipped" not in said
