"""SIGKILL of random members, round after round on one store.

Producers put in each way, readers follow, somebody asks the key index, the owner runs under
``lakelog serve`` with its dispatching in a process of its own; some of the producers may take over
where they find no owner, which they do long before another ``serve`` is there. Afterwards
``verify`` finds nothing, and what :mod:`.judging` says holds. Each test prints its seed;
``PROCESSES_SEED`` sets it. The folder of a test that fails is kept, with all journals, and the
threads of all members at that time in ``told``.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from tests.processes.group import Group, prepared, running
from tests.processes.judging import check
from tests.processes.words import STORE
from tests.support.killing import ROOT

SEED: Final = "PROCESSES_SEED"
ROUNDS: Final = "PROCESSES_ROUNDS"
FEW: Final = 4
MANY: Final = 200
OTHERS: Final = [
    {"writer": "file", "flush": "timed"},
    {"writer": "mmap", "flush": "group-commit"},
    {"writer": "file", "flush": "group-commit"},
    {"writer": "mmap", "flush": "inline"},
]


def verified(path: Path) -> None:
    """``lakelog verify`` finds nothing in log, queues, index and checkpoint."""
    command = [sys.executable, "-m", "lakelog_cli.main", "verify", str(path), "--all", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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
