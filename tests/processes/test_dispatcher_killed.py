"""A dispatcher that lands the messages in an Iceberg table is killed, too: the table is the log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import lakelog
from plugins.lake.tests.landing.tables import assert_exactly, keys_of
from tests.processes.group import Group, prepared
from tests.processes.member import Member
from tests.processes.test_killed import play, rounds_of, seed_of
from tests.processes.words import STORE
from tests.support.killing import ROOT

ROUNDS: Final = 20
STORE_ID: Final = "S"
_FEW_AT_ONCE: Final = ("--interval-ms", "50", "--pass-mib", "1", "--processes", "1")


def _command(folder: Path, *more: str) -> list[str]:
    to = ["--to", f"iceberg:{folder / 'table'}", "--store-id", STORE_ID]
    return ["dispatch", str(folder / STORE), "--engine", "processes", *to, *more]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_dispatcher_is_killed_among_the_others(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "g")
    lakelog.open(folder / STORE).close()  # who dispatches wants one to be there
    arguments = ["tests.processes.command", *_command(folder, *_FEW_AT_ONCE)]
    dispatcher = Member(folder, "dispatcher", lambda _: arguments)
    counts = play(
        Group.of(folder, 8, heirs=1, dispatcher=dispatcher), rounds_of(ROUNDS), seed_of(4)
    )
    assert counts["dispatcher"] > 0
    once = [sys.executable, "-m", "lakelog_cli.main", *_command(folder, "--once")]
    subprocess.run(once, cwd=ROOT, check=True)
    assert_exactly("iceberg", folder / "table", keys_of(folder / STORE, STORE_ID))
