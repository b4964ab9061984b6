"""A user's program is right for mypy and pyright, as lakelog's distributions are installed for it.

What is wrong is found: no part of the public API is ``Any``.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.packages.environment import Environment, run
from tests.support import maven, required
from tests.support.once import once

pytestmark = pytest.mark.timeout(300)
CONSUMER: Final = Path(__file__).parent / "consumer"
PROGRAM: Final = CONSUMER / "program.py"
Found = dict[str, dict[int, list[str]]]
Check = Callable[[Environment, Path], Found]
"""Gives what a type checker says of the files in a folder, by their names and lines."""

BEGIN: Final = """\
import lakelog
import lakelog.aio
from lakelog.format.record_batch import RecordBatch
import lakelog.hooks
import lakelog_testing

def mistakes(
    store: lakelog.Store, loop: lakelog.aio.AsyncStore, batch: RecordBatch
) -> None:
"""
MISTAKES: Final = (
    'lakelog.opn("store")',
    'lakelog.open("store", mode="append")',
    "lakelog.hooks.Kind.FLUSHER",
    "lakelog.hooks.Cleanr",
    "lakelog.format.record_batch.Batch",
    "lakelog_testing.WriterKit",
    "store.putt",
    'store.put("text")',
    'lakelog.Message("orders")',
    'lakelog.Message("orders", 5)',
    'store.get("orders", "0", 0)',
    'store.get("orders", 0, 0).message',
    'store.offset_by_time("orders", 0, 0, "nearest")',
    'store.consumer("group", "orders", commit="always")',
    'store.subscribe("group", "orders", tag="a")',
    'store.look_up(0).body.decode().append("x")',
    'store.producer("orders").put("text")',
    "store.put_async(5)",
    "store.min_offset.upper()",
    "batch.size",
    'batch.topics + "x"',
    'loop.get("orders", 0, 0).messages',
    'loop.look_up("x", 1)',
    "loop.topic()",
)


@pytest.fixture(scope="module")
def environment(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What a user has: lakelog with Arrow, and its testing kits."""

    def make(folder: Path) -> None:
        made = Environment.make(folder / "environment")
        made.bring("lakelog[testing]", installed)

    return Environment(once("consumer", make, tmp_path_factory) / "environment")


def mypy(environment: Environment, folder: Path) -> Found:
    """Run mypy with everything on, and with the packages of the environment."""
    options = [
        *("--strict", "--config-file=", "--no-error-summary"),
        *("--cache-dir", str(maven.CACHE / "mypy-of-a-consumer")),
        *("--python-executable", str(environment.python)),
    ]
    said = run([sys.executable, "-m", "mypy", *options, "."], folder, may_fail=True)
    found = re.findall(r"^(\w+\.py):(\d+): error: (.*)", said, re.MULTILINE)
    return _by_line((name, int(line), text) for name, line, text in found)


def pyright(environment: Environment, folder: Path) -> Found:
    """Run pyright in its strict mode with the packages of the environment."""
    absent = [each for each in ("node", "npm") if shutil.which(each) is None]
    if absent:
        required.missing(f"pyright needs {' and '.join(absent)}")
    settings: dict[str, object] = {"typeCheckingMode": "strict", "include": ["*.py"]}
    settings["reportUnusedExpression"] = False  # MISTAKES are such
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    program = _pyright() / "node_modules" / "pyright" / "index.js"
    options = ["--outputjson", "--pythonpath", str(environment.python), "--project", "."]
    report = json.loads(run(["node", str(program), *options], folder, may_fail=True))
    found = report["generalDiagnostics"]
    lines = ((each, each["range"]["start"]["line"] + 1) for each in found)
    return _by_line(
        (Path(each["file"]).name, line, f"{each['message']} ({each.get('rule')})")
        for each, line in lines
    )


def _pyright() -> Path:
    """The folder with pyright, which npm installs once for each state of ``package.json``."""
    source = CONSUMER / "package.json"
    options = (
        "--no-package-lock",
        "--ignore-scripts",
        "--omit=optional",
        "--no-audit",
        "--no-fund",
    )

    def install_into(target: Path) -> None:
        shutil.copy(source, target)
        maven.run(["npm", "install", "--prefix", str(target), "--loglevel=error", *options])

    return maven.once(maven.CACHE / f"pyright-{maven.digest([source])}", install_into)


def _by_line(found: Iterable[tuple[str, int, str]]) -> Found:
    files: Found = {}
    for file, line, text in found:
        files.setdefault(file, {}).setdefault(line, []).append(text)
    return files


def test_the_program_works(environment: Environment, tmp_path: Path) -> None:
    assert environment.run(str(PROGRAM), cwd=tmp_path) == "all of it works\n"


@pytest.mark.parametrize("check", [mypy, pyright])
def test_the_program_is_right_and_mistakes_are_found(
    environment: Environment, tmp_path: Path, check: Check
) -> None:
    shutil.copy(PROGRAM, tmp_path / PROGRAM.name)
    (tmp_path / "mistakes.py").write_text(BEGIN + "".join(f"    {each}\n" for each in MISTAKES))
    first = BEGIN.count("\n") + 1
    found = check(environment, tmp_path)
    assert found.get(PROGRAM.name, {}) == {}
    wrong = found["mistakes.py"]
    assert [each for at, each in enumerate(MISTAKES, first) if at not in wrong] == []
