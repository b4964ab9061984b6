"""A virtual environment in which only chosen distributions are visible; nothing is downloaded.

What this interpreter has installed is linked in, package by package. So is what is to be tested:
wheels that were built, and installed by pip into a folder, once for the whole run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Final

import attrs
from packaging.requirements import Requirement

from tests.packages.projects import BY_NAME, normal

Find = Callable[[str], tuple[Distribution, Sequence[str]]]
"""Of a name: the distribution, and its requirements."""
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


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

    def install(self, *projects: Path) -> None:
        """Build projects with what is here, and install them without their needs."""
        wheels = self.folder.with_name(f"wheels of {self.folder.name}")
        build_pure_wheels(wheels, *projects)
        install_wheels(wheels, self.site)

    def bring(self, requirement: str, *folders: Path) -> None:
        """Link in all that ``pip install`` of it brings.

        :param folders: where distributions are looked for first; then, what is installed here
        """
        for found in brought(requirement, *folders):
            self._link(found)

    def bring_checkout(self, requirement: str) -> None:
        """Link in all that it brings, with the workspace's sources."""
        for found in declared(requirement):
            self._link(found)

    def _link(self, found: Distribution) -> None:
        for name in _top_level(found):
            target = self.site / name
            if not target.exists():
                target.symlink_to(Path(str(found.locate_file(name))))
        for program in found.entry_points.select(group="console_scripts"):
            script = self.folder / "bin" / program.name
            start = f"from {program.module} import {program.attr}\n{program.attr}()"
            script.write_text(f"#!{self.python}\n{start}\n")
            script.chmod(0o755)

    def run(self, *arguments: str, cwd: Path, **environ: str) -> str:
        """Run its interpreter; what it printed."""
        return run([str(self.python), *arguments], cwd, environ)

    def lakelog(self, *commands: Sequence[str], cwd: Path) -> list[tuple[int, str]]:
        """Run ``lakelog`` with each of the commands, in one process.

        :return: of each, its exit code and what it printed
        """
        said = self.run("-c", _COMMANDS, json.dumps(commands), cwd=cwd)
        return [(code, text) for code, text in json.loads(said)]


_COMMANDS: Final = """
import contextlib, importlib, io, json, sys
run = importlib.import_module("lakelog_cli.main").run
done = []
for command in json.loads(sys.argv[1]):
    sys.argv, said, code = ["lakelog", *command], io.TextIOWrapper(io.BytesIO(), "utf-8"), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            run()
        except SystemExit as ended:
            code = ended.code or 0
    said.flush()
    done.append((code, said.buffer.getvalue().decode()))
print(json.dumps(done))
"""


def brought(requirement: str, *folders: Path) -> Iterator[Distribution]:
    """All that ``pip install`` of a requirement brings.

    :param folders: where distributions are looked for first; then, what is installed here
    """
    path = [str(each) for each in folders]

    def find(name: str) -> tuple[Distribution, Sequence[str]]:
        found = next(iter(distributions(name=name, path=path)), None)
        found = distribution(name) if found is None else found
        return found, found.requires or ()

    return _closure(requirement, find)


def size_bytes(found: Distribution, *, compiled: bool = True) -> int:
    """Bytes of the files of an installed distribution.

    :param compiled: with the byte code that pip makes; without, they are those of the wheel
    """
    named = (each for each in found.files or () if compiled or each.suffix != ".pyc")
    files = (Path(str(found.locate_file(each))) for each in named)
    return sum(each.stat().st_size for each in files if each.exists())


def declared(requirement: str) -> Iterator[Distribution]:
    """All that a requirement brings, as the files of the workspace declare it now.

    What an editable installation states was true when it was made.
    """

    def find(name: str) -> tuple[Distribution, Sequence[str]]:
        found, project = _installed_here(name), BY_NAME.get(normal(name))
        return found, project.requires if project else found.requires or ()

    return _closure(requirement, find)


def importable(requirement: str) -> set[str]:
    """The top names that can be imported where a requirement is installed."""
    names = {*sys.stdlib_module_names}
    for found in declared(requirement):
        project = BY_NAME.get(normal(found.name))
        names |= project.packages if project else _imported_names(found.name)
    return names


_installed_here = cache(distribution)


@cache
def _imported_names(name: str) -> frozenset[str]:
    """What an installed distribution brings to import."""
    return frozenset(each.partition(".")[0] for each in _top_level(_installed_here(name)))


def build_pure_wheels(folder: Path, *projects: Path) -> None:
    """Build the wheels of ``projects`` without compiled code into a folder, by their backend.

    In one process: pip would start three interpreters for each of them.
    """
    run([sys.executable, "-c", _BUILD, str(folder), *map(str, projects)])


_BUILD: Final = """
import os, sys
from hatchling.build import build_wheel
for project in sys.argv[2:]:
    os.chdir(project)
    build_wheel(sys.argv[1])
"""


def install_wheels(folder: Path, target: Path) -> None:
    """Let pip install all wheels in a folder, without their needs."""
    offline = ["--no-index", "--no-deps", "--no-cache-dir"]
    wheels = [str(each) for each in folder.glob("*.whl")]
    run([*PIP, "install", "--quiet", *offline, "--target", str(target), *wheels])


def run(
    command: list[str],
    cwd: Path | None = None,
    environ: dict[str, str] | None = None,
    *,
    may_fail: bool = False,
) -> str:
    """Run a program without this process's Python settings; fails with what it printed."""
    ours = ("PYTHON", "LAKELOG_", "PYTEST_", "COVERAGE_")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    tools = str(Path(sys.executable).parent)  # maturin, where the environment is not activated
    inherited["PATH"] = os.pathsep.join([tools, inherited.get("PATH", os.defpath)])
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, "PYTHONDONTWRITEBYTECODE": "1", **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert may_fail or done.returncode == 0, f"{command} returned {done.returncode}:\n{done.stdout}"
    return done.stdout


def _closure(requirement: str, find: Find) -> Iterator[Distribution]:
    waiting = [(Requirement(requirement), frozenset({""}))]
    seen: dict[str, frozenset[str]] = {}
    while waiting:
        needed, extras = waiting.pop()
        if needed.marker and not any(needed.marker.evaluate({"extra": each}) for each in extras):
            continue
        try:
            found, requires = find(needed.name)
        except PackageNotFoundError:
            raise AssertionError(f"{needed} is not installed here: run make setup") from None
        name, wanted = normal(found.name), frozenset({"", *needed.extras})
        if name not in seen:
            yield found
        if not wanted <= seen.get(name, frozenset()):
            seen[name] = wanted | seen.get(name, frozenset())
            waiting += [(Requirement(text), wanted) for text in requires]


def _top_level(found: Distribution) -> set[str]:
    """Names in the folder of packages that belong to a distribution."""
    parts = {file.parts[0] for file in found.files or ()}
    return parts - {"..", "__pycache__"}
