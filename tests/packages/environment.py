"""A virtual environment in which only chosen distributions are visible; nothing is downloaded.

What this interpreter has installed is linked in, package by package; what is to be tested is built
and installed from its folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import attrs
from packaging.requirements import Requirement


@attrs.frozen
class Environment:
    """A virtual environment.

    :ivar folder: where it stands
    """

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Environment:
        """Make an empty one, without pip."""
        venv.create(folder, symlinks=True, with_pip=False)
        return cls(folder)

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        """Its folder of packages."""
        return next(self.folder.glob("lib/python*/site-packages"))

    def install(self, project: Path) -> None:
        """Build the project in ``project`` with what is here, and install it without its needs."""
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        offline = ["--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
        run([*command, *offline, "--target", str(self.site), "--upgrade", str(project)])

    def link(self, *requirements: str) -> None:
        """Make installed distributions, and all that they need, visible."""
        for found in _closure(requirements):
            for name in _top_level(found):
                target = self.site / name
                if not target.exists():
                    target.symlink_to(Path(str(found.locate_file(name))))

    def run(self, *arguments: str, cwd: Path, **environ: str) -> str:
        """Run its interpreter; what it printed."""
        return run([str(self.python), *arguments], cwd, environ)


def run(command: list[str], cwd: Path | None = None, environ: dict[str, str] | None = None) -> str:
    """Run a program without this process's Python settings; fails with what it printed."""
    ours = ("PYTHON", "LAKELOG_", "PYTEST_", "COVERAGE_")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, "PYTHONDONTWRITEBYTECODE": "1", **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command} returned {done.returncode}:\n{done.stdout}"
    return done.stdout


def requirements_of(project: Path, extra: str = "") -> list[str]:
    """What a project needs, as its ``pyproject.toml`` states it."""
    import tomllib

    table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    return [*table.get("dependencies", []), *table.get("optional-dependencies", {}).get(extra, [])]


def _closure(requirements: tuple[str, ...]) -> Iterator[Distribution]:
    waiting, seen = [(Requirement(text), frozenset({""})) for text in requirements], set[str]()
    while waiting:
        requirement, extras = waiting.pop()
        if requirement.marker and not any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras
        ):
            continue
        try:
            found = distribution(requirement.name)
        except PackageNotFoundError:
            raise AssertionError(f"{requirement} is not installed here: run make setup") from None
        if found.name not in seen:
            seen.add(found.name)
            yield found
            wanted = frozenset({"", *requirement.extras})
            waiting += [(Requirement(text), wanted) for text in found.requires or ()]


def _top_level(found: Distribution) -> set[str]:
    """Names in the folder of packages that belong to a distribution."""
    parts = {file.parts[0] for file in found.files or ()}
    return parts - {"..", "__pycache__"}
