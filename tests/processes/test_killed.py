"""SIGKILL of random members, round after round on one store.

Producers put in each way, readers follow, somebody asks the key index; the owner runs under
``lakelog serve`` with its dispatching in a process of its own. Some of the producers may take over
where they find no owner, which they do long before another ``serve`` is there; or there are only
producers, each of which has the services at some time. Afterwards ``verify`` finds nothing, and
what :mod:`.judging` says holds. Each test prints its seed; ``PROCESSES_SEED`` sets it. The folder
of a test that fails is kept, with all journals, and the threads of all members at that time in
``told``.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog.processes.ownership import is_owned
from tests.processes.group import Group, prepared, running
from tests.processes.judging import check
from tests.processes.words import STORE
from tests.support.commands import invoke
from tests.support.rows import by_kind, difference
from tests.support.twostores import JAVA, SEGMENT, compare, derived, ours, recovered

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

SEED: Final = "PROCESSES_SEED"
ROUNDS: Final = "PROCESSES_ROUNDS"
FEW: Final = 4
MANY: Final = 200
BUSY_MS: Final = 20_000
OF_JAVA: Final[dict[str, Any]] = {
    "segment_bytes": SEGMENT,
    "queue": 100,
    "slots": 100,
    "entries": 400,
}
"""The sizes of small files, as :data:`JAVA` has them."""
OTHERS: Final = [
    {"writer": "file", "flush": "timed"},
    {"writer": "mmap", "flush": "group-commit"},
    {"writer": "file", "flush": "group-commit"},
    {"writer": "mmap", "flush": "inline"},
]


def verified(path: Path) -> None:
    """``lakelog verify`` finds nothing in log, queues, index and checkpoint."""
    done = invoke("verify", path, "--all", "--json")
    assert done.exit_code == 0, done.output


def play(group: Group, rounds: int, seed: int) -> Counter[str]:
    """Kill for so many rounds, then compare all; what was counted."""
    print(f"seed {seed}, in {group.folder}")  # noqa: T201  # to be run again
    choose = random.Random(seed)
    with running(group):
        for _ in range(rounds):
            group.round(choose)
        group.stop()
    verified(group.folder / STORE)
    counts = check(group.folder) + group.killed
    print(dict(counts))  # noqa: T201  # what the test was worth
    assert counts["acked"] > rounds
    assert counts["asked"] > 0
    return counts


def seed_of(default: int) -> int:
    return int(os.environ.get(SEED, default))


def rounds_of(default: int) -> int:
    return int(os.environ.get(ROUNDS, default))


@pytest.mark.timeout(400)
def test_members_are_killed(tmp_path: Path) -> None:
    play(Group.of(prepared(tmp_path / "g"), producers=5, heirs=1), rounds_of(FEW), seed_of(1))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("heirs", [0, 4])
def test_members_are_killed_again_and_again(tmp_path: Path, heirs: int) -> None:
    counts = play(
        Group.of(prepared(tmp_path / "g"), producers=8, heirs=heirs),
        rounds_of(MANY),
        seed_of(random.SystemRandom().randrange(1 << 30)),
    )
    assert counts["owner"] > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("settings", OTHERS, ids=lambda one: "-".join(one.values()))
def test_with_other_writers_and_flushes(tmp_path: Path, settings: dict[str, Any]) -> None:
    folder = prepared(tmp_path / "g", **settings)
    play(Group.of(folder, producers=8, heirs=1), rounds_of(MANY // 5), seed_of(2))


# --- without an owner of their own ---


def play_unserved(folder: Path, flush: str, rounds: int, seed: int) -> Counter[str]:
    """The store stays open all the while: no recovery comes in between."""
    prepared(folder, flush=flush, busy_ms=BUSY_MS, **OF_JAVA)
    group, choose = Group.of(folder, 8, heirs=6, served=False), random.Random(seed)
    with running(group):
        group.see_progress()
        for _ in range(rounds):
            group.round(choose)
        with lakelog.open(folder / STORE) as last:
            group.kill([(each.name, each.pid) for each in group.producers])
            last.flush()  # what the dead had appended, and nobody has synced, is seen then
            group.stop_others()
            counts = check(folder) + group.killed
    assert counts["acked"] > rounds
    assert counts["refused"] == counts["late"] == 0
    assert not is_owned(RealFileSystem(), folder / STORE)
    assert not (folder / STORE / "abort").exists(), "the last one closes the store"
    verified(folder / STORE)
    return counts


@pytest.mark.parametrize("flush", ["none", "group-commit"])
def test_producers_that_own_the_store_in_turns_are_killed(tmp_path: Path, flush: str) -> None:
    play_unserved(tmp_path / "g", flush, 2, seed_of(1))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("flush", ["none", "timed", "inline", "group-commit"])
def test_producers_that_own_the_store_in_turns_are_killed_often(
    oracle: Oracle, tmp_path: Path, flush: str
) -> None:
    counts = play_unserved(tmp_path / "g", flush, rounds_of(75), seed_of(2))
    assert counts["owner"] > 0
    assert counts["reader"] > 0
    check_closed(oracle, tmp_path / "g" / STORE)


# --- what the real store makes of it ---


def left(folder: Path, *, stop: bool, rounds: int) -> Path:
    """The store of a group some of which were killed; all of them at the end, or none."""
    prepared(folder, **OF_JAVA)
    choose = random.Random(seed_of(3))
    with running(Group.of(folder, producers=4, heirs=1)) as group:
        for _ in range(rounds):
            group.round(choose)
        if stop:
            group.stop()
    return folder / STORE


def check_closed(oracle: Oracle, path: Path) -> None:
    """The real store takes all of it as it is."""
    assert not (path / "abort").exists()
    found, before = ours(path), derived(path)
    assert by_kind(found)["rec"]
    assert difference(found, oracle.dump(path, JAVA, in_place=True)) == ""
    assert derived(path) == before


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "rounds", [pytest.param(2, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.soak)]
)
def test_the_real_store_opens_what_was_stopped(oracle: Oracle, tmp_path: Path, rounds: int) -> None:
    check_closed(oracle, left(tmp_path / "g", stop=True, rounds=rounds))


def test_the_real_store_opens_what_was_killed(oracle: Oracle, tmp_path: Path) -> None:
    path = left(tmp_path / "g", stop=False, rounds=2)
    assert (path / "abort").exists()
    copy = recovered(path)
    compare(path, ours(copy), oracle.dump(path, JAVA))
    check_closed(oracle, copy)
