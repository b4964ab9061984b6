"""Every example runs, and so does every block of README.md and of core/docs that says so.

A block runs if the line before its fence is ``<!-- run -->``. Python blocks are executed in a
folder of their own; of shell blocks, lines that start with ``lakelog`` run there one after the
other, and ``make`` targets must exist.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest
from _pytest.mark import ParameterSet

from plugins.replication.tests.certificates import CertificateAuthority
from tests.examples.forking import Forking
from tests.support import sparkjava

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
EXAMPLES: Final = sorted(
    str(file.relative_to(ROOT / "examples"))
    for file in [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*/run.py")]
)
ARGUMENTS: Final = {"demo.py": ["20000"]}
TIMEOUT_SECONDS: Final = 280
"""The first Spark session of a machine downloads packages."""
SPARK: Final = ("demo.py", "log_to_iceberg.py", "write_back.py")
ALSO_IN_A_SESSION: Final = SPARK[1:]
"""``make test`` runs them in the session that is there: plugins/spark/tests/test_examples.py."""
BLOCK: Final = re.compile(r"^<!-- run -->\n+```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MAKE: Final = re.compile(r"\bmake ([a-z]+)\b")
STARTS: Final = re.compile(r"\b(?:multiprocessing|subprocess|fork|ProcessPool|work shop|work\()")
"""What starts processes runs in one of its own."""
PLAIN: Final = re.compile(r"[^|<>&;$*`]+")
"""A line for which no shell is needed."""
LINK: Final = re.compile(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)")
PAGES: Final = (README, ROOT / "contrib" / "README.md", *(ROOT / "core" / "docs").rglob("*.md"))


@attrs.frozen
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    line: int
    page: str = README.name

    def __str__(self) -> str:
        return f"{self.page} line {self.line}"


def blocks(language: str) -> list[Block]:
    """The runnable blocks in one language, of all pages."""
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
    found = [
        Block(m[1], m[2], text.count("\n", 0, m.start()) + 2, name)
        for name, text in texts.items()
        for m in BLOCK.finditer(text)
    ]
    once = {each.text: each for each in reversed(found)}  # two pages may have the same one
    return [each for each in found if each.language == language and once[each.text] is each]


def environment() -> dict[str, str]:
    """That of a reader: our scripts on the path, no settings of ours."""
    scripts = str(Path(sys.executable).parent)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LAKELOG_", "PYTEST"))}
    return {**kept, "PATH": os.pathsep.join([scripts, kept.get("PATH", "")])}


def run(command: list[str], cwd: Path) -> str:
    """Run a program as a reader would."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, f"{shlex.join(command)} returned {done.returncode}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def forking() -> Iterator[Forking]:
    """The process from which most of what runs is forked."""
    made = Forking(environment())
    yield made
    made.close()


@pytest.fixture
def run_warm(forking: Forking, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """As :func:`run`, of a file of Python or a command of lakelog, which need not be imported."""

    def run_forked(command: list[str], cwd: Path) -> str:
        output = tmp_path_factory.mktemp("output") / "output"
        code = forking.run(cwd, output, command)
        assert code == 0, f"{shlex.join(command)} returned {code}\n{output.read_text()}"
        return output.read_text()

    return run_forked


def named(example: str) -> ParameterSet:
    """An example; those that start Spark run one at a time."""
    marks = [pytest.mark.spark] * (example in SPARK) + [pytest.mark.slow] * (
        example in ALSO_IN_A_SESSION
    )
    return pytest.param(example, marks=marks)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [named(each) for each in EXAMPLES])
def test_an_example_runs(name: str, run_warm: Callable[..., str], tmp_path: Path) -> None:
    if name in SPARK:
        sparkjava.use()
    file = ROOT / "examples" / name
    command = [str(file), *ARGUMENTS.get(name, [])]
    if STARTS.search(file.read_text()) or name in (*SPARK, "hello.py"):
        said = run([sys.executable, *command], tmp_path)
    else:
        said = run_warm(command, tmp_path)
    assert said.strip(), "it should print something"
    assert list(tmp_path.iterdir()) == [], "it should leave nothing behind"


@pytest.mark.timeout(300)
def test_two_machines_trust_each_other_by_certificates(tmp_path: Path) -> None:
    issued = CertificateAuthority(tmp_path / "made", "ours").issue("machine")
    folder = tmp_path / "certificates"
    folder.mkdir()
    for name, file in issued.items():
        shutil.copy(file, folder / f"{name}.pem")
    example = ROOT / "examples" / "copy_to_a_second_machine.py"
    said = run([sys.executable, str(example), str(folder)], tmp_path)
    assert "; 0 of them are lost" in said
    assert "PUT_OK" in said


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_in_a_page_runs(block: Block, run_warm: Callable[..., str], tmp_path: Path) -> None:
    script = tmp_path / "block.py"  # a file, as a user's: processes that it spawns import it
    script.write_text(block.text)
    if STARTS.search(block.text):
        run([sys.executable, str(script)], tmp_path)
    else:
        run_warm([str(script)], tmp_path)


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_shell_in_a_page_runs(block: Block, run_warm: Callable[..., str], tmp_path: Path) -> None:
    lines = [line for line in block.text.splitlines() if line and not line.startswith("#")]
    assert lines
    for line in lines:
        words = shlex.split(line, comments=True)
        if STARTS.search(line):
            run(words, tmp_path)
        elif words[0] == "lakelog" and PLAIN.fullmatch(line.partition(" #")[0]):
            run_warm(words, tmp_path)
        else:
            run(["bash", "-o", "pipefail", "-c", line], tmp_path)


def test_pages_have_blocks_that_run() -> None:
    assert {README.name, "core/docs/guides/broker.md"} <= {each.page for each in blocks("python")}
    assert README.name in {each.page for each in blocks("sh")}


def test_targets_that_the_readme_names_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(MAKE.findall(" ".join(re.findall(r"`[^`]+`|^make .*$", README.read_text(), re.M))))
    assert {"demo", "test"} <= named <= targets


def test_make_runs_all_tests_of_spark() -> None:
    given = re.search(r"^test-spark:.*\n.*,,(.*?)\)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert given is not None
    tests = [
        file for place in (".", "*", "*/*") for file in ROOT.glob(f"{place}/tests/**/test_*.py")
    ]
    marked = {file for file in tests if "mark.spark" in file.read_text()}
    assert marked
    assert marked == {
        f for f in marked for place in given[1].split() if f.is_relative_to(ROOT / place)
    }


def test_links_between_pages_lead_somewhere() -> None:
    links = [(page, to) for page in PAGES for to in LINK.findall(page.read_text())]
    assert [(page, to) for page, to in links if not (page.parent / to).exists()] == []
