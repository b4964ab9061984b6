"""Followers of the settings, which ``serve`` runs as separate programs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakelog.errors import MissingPlugin
from lakelog_daemon.plan import ServePlan
from plugins.tools.tests.daemon.support import serving
from tests.support.waiting import until

PLUGIN = """
import sys, threading
from pathlib import Path

import attrs
from lakelog.errors import StoreFailed
from lakelog.hooks.hookspecs import hookimpl
from lakelog.hooks import Factory, Kind

@attrs.frozen
class Wishes:
    word: str = "hello"

class Notes:
    def __init__(self, settings, context):
        self.file = Path(context.path).parent / "notes"
        self.word, self.read_only = settings.word, context.read_only
        self.well = True

    def start(self):
        with self.file.open("a") as notes:
            notes.write(f"start {self.word} {self.read_only}\\n")
        if self.word == "sick":
            self.well = False

    def is_well(self):
        if self.word == "dead":
            raise StoreFailed("a sync failed", path=self.file)
        return self.well

    def stop(self):
        with self.file.open("a") as notes:
            notes.write("stop\\n")

class Program(Notes):
    def command(self):
        program = "import time; print('a program', flush=True); time.sleep(600)"
        return [sys.executable, "-c", program]

@hookimpl
def lakelog_followers():
    return [
        Factory(Kind.FOLLOWER, "notes", Wishes, Notes),
        Factory(Kind.FOLLOWER, "program", Wishes, Program),
    ]
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Install a plugin that offers followers; the environment in which it is found."""
    site = tmp_path / "site"
    info = site / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "acme_followers.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lakelog]\nacme = acme_followers\n")
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path}


def test_followers_of_the_settings_run_as_children(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    chosen = ('followers=["notes", "program"]', "notes.word=salve", "serve.hang_timeout_ms=20000")
    with serving(tmp_path, environ=installed, settings=chosen) as serve:
        shown = Path(f"/proc/{serve.running('notes')}/cmdline").read_bytes()
        assert b"salve" not in shown, "any user of the machine can read it"
        serve.running("program")
        notes = tmp_path / "notes"
        until(notes.exists)
        assert serve.row("notes")["kind"] == "follower"
        assert serve.said("output")["message"] == "a program"
        until(lambda: "start salve True\n" in notes.read_text())
        assert serve.stop() == 0
    assert notes.read_text() == "start salve True\nstop\n"
    assert "killed" not in serve.events()


def test_a_follower_that_is_not_well_is_started_again(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    chosen = ('followers=["notes"]', "notes.word=sick")
    with serving(tmp_path, environ=installed, settings=chosen) as serve:
        serve.running("notes", restarts=1)
        assert serve.row("notes")["hangs"] == 1
        assert "has sent no WATCHDOG=1" in serve.said("hangs")["message"]
        assert serve.stop() == 0


def test_a_follower_that_cannot_get_on_ends_and_is_started_again(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    chosen = ('followers=["notes"]', "notes.word=dead", "serve.hang_timeout_ms=60000")
    with serving(tmp_path, environ=installed, settings=chosen) as serve:
        serve.running("notes", restarts=1)
        assert not serve.row("notes")["hangs"]
        assert (tmp_path / "notes").read_text().startswith("start dead True\nstop\n")
        assert serve.stop() == 0


def test_a_follower_that_is_not_installed_is_told_before_anything_is_touched(
    tmp_path: Path,
) -> None:
    with pytest.raises(MissingPlugin, match="spirit"):
        ServePlan.make(tmp_path / "s", arguments={"followers": ["spirit"]})
    assert not (tmp_path / "s").exists()
