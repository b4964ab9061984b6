"""The distributions of the workspace, as their ``pyproject.toml`` files declare them."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import attrs
from packaging.requirements import Requirement

ROOT: Final = Path(__file__).parents[2]


@attrs.frozen(slots=False)
class Project:
    """One distribution.

    :ivar folder: where its ``pyproject.toml`` stands
    """

    folder: Path

    def __str__(self) -> str:
        return str(self.folder.relative_to(ROOT))

    @cached_property
    def table(self) -> dict[str, Any]:
        """What it declares of itself."""
        whole = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))
        table: dict[str, Any] = whole["project"]
        return table

    @property
    def name(self) -> str:
        """The name under which pip installs it."""
        return str(self.table["name"])

    @cached_property
    def packages(self) -> frozenset[str]:
        """The packages that it brings."""
        return frozenset(each.parent.name for each in self.folder.glob("src/*/__init__.py"))

    @property
    def modules(self) -> list[str]:
        """All its modules, other than programs."""
        source = self.folder / "src"
        files = sorted(each for each in source.rglob("*.py") if each.stem != "__main__")
        names = (each.relative_to(source).with_suffix("").parts for each in files)
        return [".".join(each).removesuffix(".__init__") for each in names]

    @property
    def requires(self) -> list[str]:
        """Its requirements, those of an extra with the marker that a wheel's metadata have."""
        extras: dict[str, list[str]] = self.table.get("optional-dependencies", {})
        more = [f"{each} ; extra == '{extra}'" for extra in extras for each in extras[extra]]
        return [*self.table.get("dependencies", ()), *more]

    @property
    def named(self) -> set[str]:
        """Names of the distributions that it names itself: its dependencies, its extras."""
        return {Requirement(each).name for each in self.requires}

    def imports(self, folder: str) -> Iterator[tuple[Path, str]]:
        """What the files of a folder import, at the top and within functions."""
        for file in sorted((self.folder / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    yield from ((file, each.name) for each in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield file, str(node.module)


def normal(name: str) -> str:
    """The name as it is compared."""
    return name.lower().replace("_", "-").replace(".", "-")


def _projects() -> Sequence[Project]:
    folders = (ROOT / "core", *ROOT.glob("plugins/*"), *ROOT.glob("contrib/*"))
    return tuple(Project(each) for each in sorted(folders) if (each / "pyproject.toml").exists())


PROJECTS: Final = _projects()
BY_NAME: Final = {each.name: each for each in PROJECTS}
