"""``lakelog plugins new``: names, kinds, and existing files; packages are tested elsewhere.

``tests/packages/test_third_party.py`` installs one of each kind, and runs its tests.
"""

from __future__ import annotations

import os
import pty
from pathlib import Path

import pytest

from lakelog_cli.commands.plugins import TEMPLATES
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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../acme", "no name for a plugin"),
        ("x" * 41, "at most 40"),
        ("json", "a word or a module of Python"),
        ("attrs", "can be imported here already"),
        ("lakelog-inline", "'inline' is a strategy already, of builtin"),
        ("lakelog-flush-", "no name for a plugin"),
        ("segment-size-bytes", "a setting of the core"),
        ("lakelog-9", "'9'"),
    ],
    ids=lambda each: each[:12],
)
def test_a_name_that_cannot_be_used(lakelog: Run, tmp_path: Path, name: str, said: str) -> None:
    done = lakelog("plugins", "new", name, "--kind", "writer")
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", ["follower", "6"])
def test_a_terminal_is_asked(lakelog: Run, tmp_path: Path, answer: str) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with os.fdopen(theirs) as terminal:
        done = lakelog("plugins", "new", "acme-pace", stdin=terminal)
    os.close(ours)
    assert done.returncode == 0, done.stderr
    assert "6 follower: the template counts messages by topic" in done.stderr
    strategy = tmp_path / "acme-pace" / "src" / "acme_pace" / "strategy.py"
    assert "hooks.Follower" in strategy.read_text()
