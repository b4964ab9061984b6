"""Lint what changed, and run the tests nearest to it for at most a minute: ``make quick``.

``python -m tests.quick [REVISION]`` compares with a commit; default: the last one, ``HEAD``.
Tests are chosen by imports: changed tests, tests that import a changed module, then tests that
import a module that imports one, those of the same distribution first. Two processes run them, and
stop after ``BUDGET_S`` seconds; the command says how many files were left to ``make test``.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
BUDGET_S: Final = 45.0
PROCESSES: Final = 2
_DEADLINE: Final = "LAKELOG_QUICK_DEADLINE"
_NOTHING: Final = 5  # pytest's exit code if it ran no test


def pytest_runtest_logfinish() -> None:  # pytest loads this module as a plugin
    """Stop the run once the time is over."""
    if time.monotonic() > float(os.environ[_DEADLINE]):
        pytest.exit("the time of make quick is over", returncode=0)


def changed(revision: str) -> list[Path]:
    """Return the Python files that differ from a commit, or are new."""
    differ = ["git", "diff", "--name-only", "--diff-filter=d", revision]
    new = ["git", "ls-files", "--others", "--exclude-standard"]
    names: set[str] = set()
    for command in (differ, new):
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        names.update(done.stdout.splitlines())
    return sorted(ROOT / name for name in names if name.endswith(".py"))


def module_name(path: Path) -> str:
    """Return the name by which a file of the workspace is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if "src" in parts:
        parts = parts[parts.index("src") + 1 :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the names of modules, or of things in them, that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{each.name}" for each in node.names)
    return frozenset(found)


def is_test(path: Path) -> bool:
    """Return whether pytest collects a file."""
    return path.name.startswith("test_")


def chosen(changes: Sequence[Path], files: Iterable[Path]) -> list[Path]:
    """Return the test files to run, the nearest to the changes first."""
    places: Mapping[str, Path] = {module_name(path): path for path in files}
    names = {module_name(path) for path in changes if not is_test(path)}
    direct = {name for name, path in places.items() if imports(path) & names}
    ranks: dict[Path, tuple[int, bool, int]] = {}
    homes = {path.relative_to(ROOT).parts[:2] for path in changes}

    def rank(path: Path, distance: int) -> None:
        if is_test(path) and path not in ranks:
            elsewhere = path.relative_to(ROOT).parts[:2] not in homes
            ranks[path] = (distance, elsewhere, len(imports(path)))

    for path in changes:
        rank(path, 0)
    for name in direct:
        rank(places[name], 1)
    sources = {name for name in direct if not is_test(places[name])}
    for path in places.values():
        if imports(path) & sources:
            rank(path, 2)
    return sorted(ranks, key=lambda path: (ranks[path], path))


def lint(changes: Sequence[Path]) -> int:
    """Lint the files and check the format; return the exit code."""
    names = [os.fspath(path) for path in changes]
    programs = Path(sys.executable).parent
    checks = (["check"], ["format", "--check"])
    return max(
        subprocess.run([programs / "ruff", *check, "-q", *names], cwd=ROOT, check=False).returncode
        for check in checks
    )


def types(changes: Sequence[Path]) -> subprocess.Popen[bytes]:
    """Begin to check the types of the files."""
    program = Path(sys.executable).with_name("mypy")
    return subprocess.Popen([program, *map(os.fspath, changes)], cwd=ROOT)


def run(tests: Sequence[Path], deadline_s: float) -> int:
    """Run test files in several processes until the deadline; return the exit code."""
    environ = {**os.environ, _DEADLINE: str(deadline_s)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.quick"]
    command += ["-p", "no:cacheprovider", "-o", f"timeout={BUDGET_S:.0f}"]
    running = [
        subprocess.Popen([*command, *map(os.fspath, part)], cwd=ROOT, env=environ)
        for part in (tests[at::PROCESSES] for at in range(PROCESSES))
        if part
    ]
    return max((each.wait() % _NOTHING for each in running), default=0)


def main() -> int:
    """Run the command; return its exit status."""
    deadline_s = time.monotonic() + BUDGET_S
    revision = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    try:
        changes = changed(revision)
    except subprocess.CalledProcessError as error:
        print(f"cannot compare with the commit {revision!r}: {error.stderr.splitlines()[0]}")
        return 2
    if not changes:
        print("no Python file differs from the commit; `make quick SINCE=HEAD~1` names another")
        return 0
    failed = lint(changes)
    if failed:
        return failed
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    tests = chosen(changes, [ROOT / name for name in tracked if (ROOT / name).is_file()])
    print(f"{len(changes)} files changed; {len(tests)} test files, the nearest first")
    checking = types(changes)
    return max(run(tests, deadline_s), checking.wait())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # the tests get it too, and print what they have found
        sys.exit(130)
