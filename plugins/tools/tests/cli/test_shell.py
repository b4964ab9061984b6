"""Completion scripts and manual pages are made from the commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plugins.tools.tests.cli.conftest import Run


def _completed(*words: str) -> list[str]:
    """The completions of the last word; the program is run as by the shell's script."""
    environment = {
        **os.environ,
        "_LAKELOG_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["lakelog", *words]),
        "COMP_CWORD": str(len(words)),
    }
    command = [Path(sys.executable).parent / "lakelog"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_commands_subcommands_and_options_are_completed() -> None:
    assert set(_completed("gr")) == {"grep", "groups"}
    assert _completed("groups", "re") == ["reset"]
    assert set(_completed("put", "--js")) == {"--json", "--jsonl"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(lakelog: Run, shell: str) -> None:
    done = lakelog("completion", shell)
    assert "_LAKELOG_COMPLETE" in done.stdout
    if found := shutil.which(shell):
        subprocess.run([found, "-n"], input=done.stdout, text=True, check=True)


def test_another_shell_is_wrong_usage(lakelog: Run) -> None:
    done = lakelog("completion", "tcsh")
    assert done.returncode == 2
    assert "'bash'" in done.stderr


def test_a_page_for_each_command(lakelog: Run, tmp_path: Path) -> None:
    done = lakelog("man", tmp_path / "man1")
    assert done.returncode == 0, done.stderr
    names = {each.stem for each in (tmp_path / "man1").iterdir()}
    assert {"lakelog", "lakelog-put", "lakelog-groups-reset", "lakelog-doctor"} <= names
    page = (tmp_path / "man1" / "lakelog-put.1").read_text()
    assert ".B \\-\\-tags" in page
    assert "Append messages" in page
    if groff := shutil.which("groff"):
        command = [groff, "-man", "-Tutf8", "-ww"]
        shown = subprocess.run(command, input=page, text=True, capture_output=True, check=True)
        assert shown.stderr == ""
        assert "lakelog put [OPTIONS] STORE TOPIC" in shown.stdout
