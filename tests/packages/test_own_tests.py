"""Each distribution passes its own tests with what its ``pyproject.toml`` declares, and no more.

The rule: tests of a distribution have an environment with its dependencies and its extra ``test``,
and what these bring. They import no distribution of the workspace that it does not name itself,
and of the checkout only test folders of the same distributions, ``tests.support`` and ``examples``.
A test that needs more belongs to the distribution that it needs, or to ``tests``.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.packages.environment import Environment, declared, importable
from tests.packages.projects import BY_NAME, PROJECTS, ROOT, Project, normal

OURS = ("contrib", "core", "examples", "plugins", "tests")


every = pytest.mark.parametrize("project", PROJECTS, ids=str)


def run_tests(project: Project, tmp_path: Path, *options: str) -> str:
    """Run its tests in an environment of their own; what pytest printed."""
    made = Environment.make(tmp_path / "environment")
    made.bring_checkout(f"{project.name}[test]")
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.packages.some")
    folders = (f"--basetemp={tmp_path / 'basetemp'}", str(project.folder / "tests"))
    # With bytecode, which tests that ran before have left, or which is left for those that follow.
    given = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    return made.run(*command, *options, *folders, cwd=ROOT, **given)


@pytest.mark.timeout(300)
@pytest.mark.disk
@pytest.mark.sample(3)
@every
def test_all_are_collected_and_some_pass(project: Project, tmp_path: Path) -> None:
    said = run_tests(project, tmp_path, "--some=4")
    assert re.search(r"\d+ (passed|skipped)", said), said


@every
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_all_pass(project: Project, tmp_path: Path) -> None:
    assert re.search(r"\d+ passed", run_tests(project, tmp_path))


def test_all_declare_what_their_tests_import() -> None:
    wrong = []
    for project in PROJECTS:
        declares = importable(f"{project.name}[test]") | {*OURS}
        imports = project.imports("tests", at_once=True)
        wrong += [each for each in imports if each[1].partition(".")[0] not in declares]
    assert wrong == []


@every
def test_they_import_what_it_names(project: Project) -> None:
    named = {project.name, *project.named}
    ours = [BY_NAME[each] for each in named if each in BY_NAME]
    theirs = {package for each in PROJECTS if each not in ours for package in each.packages}
    folders = {f"{each}/tests" for each in ours} | {"tests/support", "examples"}
    for file, module in project.imports("tests"):
        top = module.partition(".")[0]
        assert top not in theirs, f"{project} does not name {top}, which {file} imports"
        if top in OURS:
            path = module.replace(".", "/") + "/"
            assert any(path.startswith(f"{each}/") for each in folders), f"{file}: {module}"


def test_wheels_of_native_are_tested_with_what_it_names() -> None:
    """They are built in containers, where no index has the other distributions yet."""
    native = BY_NAME["lakelog-native"]
    whole = tomllib.loads((native.folder / "pyproject.toml").read_text())
    listed = re.findall(r"{project}/(\S+)", whole["tool"]["cibuildwheel"]["before-test"])
    brought = {normal(each.name) for each in declared(f"{native.name}[test]")}
    assert listed == sorted(
        str(BY_NAME[each]) for each in (brought & BY_NAME.keys()) - {native.name}
    )
