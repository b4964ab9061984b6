"""``lakelog plugins new``: names, kinds, and existing files; packages are tested elsewhere.

``tests/packages/test_third_party.py`` installs one of each kind, and runs its tests.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from lakelog_cli.newplugin.kinds import TEMPLATES
from plugins.tools.tests.cli.conftest import Run

FILES = {
    *("README.md", "pyproject.toml", "tests/conftest.py", "tests/test_strategy.py"),
    *(f"src/acme_pace/{name}.py" for name in ("__init__", "plugin", "settings", "strategy")),
    "src/acme_pace/py.typed",
}


def files(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_package_of_each_kind(lakelog: Run, tmp_path: Path, kind: str) -> None:
    done = lakelog("plugins", "new", "acme-pace", "--kind", kind)
    assert done.returncode == 0, done.stderr
    assert files(tmp_path / "acme-pace") == FILES
    assert {str(Path(line).relative_to("acme-pace")) for line in done.stdout.splitlines()} == FILES
    texts = [(tmp_path / "acme-pace" / each).read_text() for each in FILES]
    assert [text for text in texts if "$" in text] == []
    assert 'name="acme-pace"' in (tmp_path / "acme-pace/src/acme_pace/plugin.py").read_text()


def test_a_folder_of_ones_own_and_a_prefix_that_settings_leave_out(
    lakelog: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "made" / "here"
    done = lakelog("plugins", "new", "lakelog-pace", folder, "--kind", "Flush_Strategy")
    assert done.returncode == 0, done.stderr
    assert '\npace = "lakelog_pace.plugin"' in (folder / "pyproject.toml").read_text()
    assert 'flush="pace"' in (folder / "README.md").read_text()


def test_what_is_there_stays(lakelog: Run, tmp_path: Path) -> None:
    (tmp_path / "acme-pace").mkdir()
    (tmp_path / "acme-pace" / "README.md").write_text("mine")
    done = lakelog("plugins", "new", "acme-pace", "--kind", "writer")
    assert (done.returncode, done.stdout) == (2, "")
    assert "acme-pace is not empty: nothing there is overwritten" in done.stderr
    assert files(tmp_path / "acme-pace") == {"README.md"}


@pytest.mark.parametrize("file", ["acme-pace", "in-the-way/below"])
def test_a_folder_that_cannot_be_made(lakelog: Run, tmp_path: Path, file: str) -> None:
    (tmp_path / Path(file).parts[0]).write_text("no folder")
    done = lakelog("plugins", "new", "acme-pace", file, "--kind", "writer")
    assert done.returncode == 5
    assert f"{file} cannot be made" in done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Acme", "no name for a plugin"),
        ("acme--pace", "no name for a plugin"),
        ("../acme", "no name for a plugin"),
        ("x" * 41, "at most 40"),
        ("class", "a word or a module of Python"),
        ("json", "a word or a module of Python"),
        ("attrs", "can be imported here already"),
        ("lakelog", "can be imported here already"),
        ("lakelog-cli", "can be imported here already"),
        ("lakelog-inline", "'inline' is a strategy already, of builtin"),
        ("lakelog-flush-", "no name for a plugin"),
        ("segment-size-bytes", "a setting of the core"),
        ("lakelog-9", "'9'"),
    ],
)
def test_a_name_that_cannot_be_used(lakelog: Run, tmp_path: Path, name: str, said: str) -> None:
    done = lakelog("plugins", "new", name, "--kind", "writer")
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "give --kind KIND; one of append-callback, writer"),
        (["--kind", "writr"], "do you mean 'writer'?"),
        (["--kind", "sink"], "give one of append-callback"),
    ],
)
def test_a_kind_that_is_missing_or_none(
    lakelog: Run, tmp_path: Path, given: list[str], said: str
) -> None:
    done = lakelog("plugins", "new", "acme-pace", *given)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", ["follower", "6"])
def test_a_terminal_is_asked(tmp_path: Path, answer: str) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [sys.executable, "-m", "lakelog", "plugins", "new", "acme-pace"]
    try:
        done = subprocess.run(
            command, cwd=tmp_path, stdin=theirs, capture_output=True, text=True, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert "6 follower: the template counts messages by topic" in done.stderr
    strategy = tmp_path / "acme-pace" / "src" / "acme_pace" / "strategy.py"
    assert "interfaces.Follower" in strategy.read_text()
