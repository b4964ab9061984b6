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
        files = sorted((self.folder / "src").rglob("*.py"))
        return [self.module(each) for each in files if each.stem != "__main__"]

    def module(self, file: Path) -> str:
        """The name of the module in a file of its sources."""
        parts = file.relative_to(self.folder / "src").with_suffix("").parts
        return ".".join(parts).removesuffix(".__init__")

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

    def imports(self, folder: str, *, at_once: bool = False) -> Iterator[tuple[Path, str]]:
        """What the files of a folder import.

        :param at_once: what an import of the file must find, and not also what its functions import
        """
        for file in sorted((self.folder / folder).rglob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            for node in _run_at_once(tree) if at_once else ast.walk(tree):
                if isinstance(node, ast.Import):
                    yield from ((file, each.name) for each in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield file, str(node.module)


def _run_at_once(node: ast.AST) -> Iterator[ast.AST]:
    """What of a module its import runs: no function, nothing for type checkers, nothing tried."""
    later = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Try)
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING":
            yield from (inner for other in each.orelse for inner in _run_at_once(other))
        elif not isinstance(each, later):
            yield each
            yield from _run_at_once(each)


def normal(name: str) -> str:
    """The name as it is compared."""
    return name.lower().replace("_", "-").replace(".", "-")


def _projects() -> Sequence[Project]:
    folders = (ROOT / "core", *ROOT.glob("plugins/*"), *ROOT.glob("contrib/*"))
    return tuple(Project(each) for each in sorted(folders) if (each / "pyproject.toml").exists())


PROJECTS: Final = _projects()
BY_NAME: Final = {each.name: each for each in PROJECTS}
