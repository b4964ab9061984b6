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
from pathlib import Path
from typing import Final

import attrs
import pytest
from _pytest.mark import ParameterSet

from plugins.replication.tests.certificates import CertificateAuthority

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
BLOCK: Final = re.compile(r"^<!-- run -->\n+```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MAKE: Final = re.compile(r"\bmake ([a-z]+)\b")
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
    return [each for each in found if each.language == language]


def run(command: list[str], cwd: Path) -> str:
    """Run a program as a reader would: our scripts on the path, no settings of ours."""
    scripts = str(Path(sys.executable).parent)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LAKELOG_", "PYTEST"))}
    environment["PATH"] = os.pathsep.join([scripts, environment.get("PATH", "")])
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, f"{shlex.join(command)} returned {done.returncode}\n{done.stdout}"
    return done.stdout


def named(example: str) -> ParameterSet:
    """An example; those that start Spark run one at a time."""
    return pytest.param(example, marks=[pytest.mark.spark] if example in SPARK else [])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [named(each) for each in EXAMPLES])
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / name), *ARGUMENTS.get(name, [])]
    assert run(command, tmp_path).strip(), "it should print something"
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
def test_python_in_a_page_runs(block: Block, tmp_path: Path) -> None:
    script = tmp_path / "block.py"  # a file, as a user's: processes that it spawns import it
    script.write_text(block.text)
    run([sys.executable, str(script)], tmp_path)


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_shell_in_a_page_runs(block: Block, tmp_path: Path) -> None:
    lines = [line for line in block.text.splitlines() if line and not line.startswith("#")]
    assert lines
    for line in lines:
        run(["bash", "-o", "pipefail", "-c", line], tmp_path)


def test_pages_have_blocks_that_run() -> None:
    assert {README.name, "core/docs/guides/broker.md"} <= {each.page for each in blocks("python")}
    assert README.name in {each.page for each in blocks("sh")}


def test_targets_that_the_readme_names_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(MAKE.findall(" ".join(re.findall(r"`[^`]+`|^make .*$", README.read_text(), re.M))))
    assert {"demo", "test"} <= named <= targets


def test_links_between_pages_lead_somewhere() -> None:
    links = [(page, to) for page in PAGES for to in LINK.findall(page.read_text())]
    assert [(page, to) for page, to in links if not (page.parent / to).exists()] == []
