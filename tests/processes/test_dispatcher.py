"""A dispatcher is killed beside attached producers and the owner: the table is the log.

It and the owner die at once, or one of them; or all sorts of members, by chance, for many rounds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import lakelog
from plugins.lake.tests.landing.program_evidence import landed_to
from plugins.lake.tests.landing.tables import assert_exactly, keys_of
from tests.processes.group import SERVE, Group, prepared, running
from tests.processes.judging import check
from tests.processes.member import Member, owner_of
from tests.processes.test_killed import play, rounds_of, seed_of
from tests.processes.words import STORE
from tests.support.commands import invoke
from tests.support.waiting import until

QUICK: Final = "parquet"
"""The kind of table that lands the soonest; the others have their own tests of kills."""
STORE_ID: Final = "S"
DISPATCHER: Final = "dispatcher"
OWNER: Final = "owner"


def command(folder: Path, kind: str, *more: str) -> list[str]:
    to = ["--to", f"{kind}:{folder / 'table'}", "--store-id", STORE_ID, "--processes", "1"]
    return ["dispatch", str(folder / STORE), "--engine", "processes", *to, *more]


def group_of(folder: Path, kind: str, producers: int, heirs: int) -> Group:
    prepared(folder)
    lakelog.open(folder / STORE).close()  # who dispatches wants one to be there
    dispatching = command(folder, kind, "--interval-ms", "50", "--pass-mib", "1")
    dispatcher = Member(folder, DISPATCHER, lambda _: ["tests.processes.command", *dispatching])
    return Group.of(folder, producers, heirs, dispatcher=dispatcher)


def check_table(folder: Path, kind: str) -> None:
    done = invoke(*command(folder, kind, "--once"))
    assert done.exit_code == 0, done.output
    assert_exactly(kind, folder / "table", keys_of(folder / STORE, STORE_ID))


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
    folder, table = tmp_path / "g", tmp_path / "g" / "table"
    group = group_of(folder, QUICK, producers=2, heirs=0)
    few = {SERVE, DISPATCHER, *(each.name for each in group.producers)}
    group = Group(folder, {name: each for name, each in group.members.items() if name in few})

    def landed() -> int:
        return landed_to(QUICK, table) if table.exists() else 0

    with running(group):
        until(lambda: landed() > 0, "nothing lands", seconds=180)
        until(lambda: owner_of(folder) is not None, "there is no owner")
        pids = {OWNER: owner_of(folder), DISPATCHER: group.members[DISPATCHER].pid}
        group.kill([(name, pid) for name in victims if (pid := pids[name]) is not None])
        group.start()
        group.see_progress()
        before = landed()
        until(lambda: landed() > before, f"nothing lands after {victims} died")
        group.stop()
    assert all(group.killed[each] for each in victims)
    check(folder)
    check_table(folder, QUICK)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_dispatcher_is_killed_among_the_others(tmp_path: Path) -> None:
    group = group_of(tmp_path / "g", "iceberg", producers=8, heirs=1)
    counts = play(group, rounds_of(20), seed_of(4))
    assert counts[DISPATCHER] > 0
    check_table(tmp_path / "g", "iceberg")
