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
def test_the_long_description_has_no_link_into_the_repository(project: Project) -> None:
    text, source = description(project), (project.folder / "README.md").read_text()
    assert LINK.findall(text) == []
    assert FENCED.findall(text) == FENCED.findall(source)
    assert len(text) > 100


@pytest.mark.parametrize("project", ALL, ids=str)
def test_authors_licence_and_status_are_stated(project: Project) -> None:
    table = project.table
    assert table["authors"] == [{"name": "lakelog developers"}]
    assert (table["license"], table["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert (project.folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert len(table["description"]) < 120
    assert [each for each in table["classifiers"] if each.startswith(STATUS)] == [status()]


def status() -> str:
    [found] = [each for each in BY_NAME["lakelog-core"].table["classifiers"] if STATUS in each]
    return str(found)


def test_all_have_one_version_and_name_one_another_by_it() -> None:
    version = BY_NAME["lakelog-core"].table["version"]
    assert {each.table["version"] for each in ALL} == {version}
    wrong = [
        f"{project}: {text}"
        for project in ALL
        for text in all_requirements(project)
        if normal(Requirement(text).name) in BY_NAME
        and str(Requirement(text).specifier) != f"=={version}"
    ]
    assert wrong == []
    cargo = tomllib.loads((ROOT / "plugins" / "native" / "Cargo.toml").read_text())
    assert cargo["package"]["version"] == version
    assert f"\n## [{version}] - " in (ROOT / "CHANGELOG.md").read_text()


def all_requirements(project: Project) -> list[str]:
    """What it needs, with all of its extras."""
    extras = project.table.get("optional-dependencies", {}).values()
    return [*project.table.get("dependencies", ()), *(text for each in extras for text in each)]


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
