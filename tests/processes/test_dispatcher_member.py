"""A dispatcher beside attached producers: it and the owner die, and the table is the log.

Here both die at once, or one of them; in :mod:`.test_dispatcher_killed` all sorts of members, by
chance, for many rounds.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

import lakelog
from plugins.lake.tests.landing.program_evidence import landed_to
from plugins.lake.tests.landing.tables import assert_exactly, keys_of
from tests.processes.group import SERVE, Group, prepared, running
from tests.processes.judging import check
from tests.processes.member import Member, owner_of
from tests.processes.words import STORE
from tests.support.killing import ROOT
from tests.support.waiting import until

KIND: Final = "parquet"
"""What lands the soonest; the others have their own tests of kills."""
STORE_ID: Final = "S"
DISPATCHER: Final = "dispatcher"
OWNER: Final = "owner"
_PAUSE_SECONDS: Final = 0.3
_START_SECONDS: Final = 180


def _command(folder: Path, *more: str) -> list[str]:
    to = ["--to", f"{KIND}:{folder / 'table'}", "--store-id", STORE_ID, "--processes", "1"]
    return ["dispatch", str(folder / STORE), "--engine", "processes", *to, *more]


def _group(folder: Path, producers: int) -> Group:
    arguments = ["tests.processes.command", *_command(folder, "--interval-ms", "50")]
    dispatcher = Member(folder, DISPATCHER, lambda _: arguments)
    found = Group.of(folder, producers, heirs=0, dispatcher=dispatcher)
    few = {SERVE, DISPATCHER, *(each.name for each in found.producers)}
    return Group(folder, {name: each for name, each in found.members.items() if name in few})


def _landed(folder: Path) -> int:
    """Up to where, by the table."""
    return landed_to(KIND, folder / "table") if (folder / "table").exists() else 0


def _kill(group: Group, victims: list[str]) -> None:
    """At once; then all are started again, and all get on, the table too."""
    until(lambda: owner_of(group.folder) is not None, "there is no owner")
    pids = {OWNER: owner_of(group.folder), DISPATCHER: group.members[DISPATCHER].pid}
    group._kill([(name, pid) for name in victims if (pid := pids[name]) is not None])
    group.start()
    group._see_progress()
    before = _landed(group.folder)
    until(lambda: _landed(group.folder) > before, f"nothing lands after {victims} died")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "victims",
    [
        [OWNER, DISPATCHER],
        pytest.param([OWNER], marks=pytest.mark.slow),
        pytest.param([DISPATCHER], marks=pytest.mark.slow),
    ],
    ids="-".join,
)
def test_the_table_is_the_log(tmp_path: Path, victims: list[str]) -> None:
    folder = prepared(tmp_path / "g")
    lakelog.open(folder / STORE).close()  # who dispatches wants one to be there
    group = _group(folder, producers=2)
    with running(group):
        until(lambda: _landed(folder) > 0, "nothing lands", seconds=_START_SECONDS)
        time.sleep(_PAUSE_SECONDS)
        _kill(group, victims)
        group.stop()
    assert all(group.killed[each] for each in victims)
    check(folder)
    once = [sys.executable, "-m", "lakelog_cli.main", *_command(folder, "--once")]
    subprocess.run(once, cwd=ROOT, check=True)
    assert_exactly(KIND, folder / "table", keys_of(folder / STORE, STORE_ID))
