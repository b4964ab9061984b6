"""Random verbs of many threads, of callbacks and of forked children: all come to an end."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import lakelog
from tests.support import forked
from tests.support.sampling import seed_of_this_run

ROOT: Final = Path(__file__).parents[2]
FLUSHES: Final = ("none", "timed", "inline", "group-commit")
ROLES: Final = ("owner", "attach", "heir")
PROGRAMS: Final = pytest.mark.parametrize(
    ("program", "role"),
    [*(("verbs", role) for role in ROLES), ("forks", "owner"), ("forks", "attach")],
)


@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.slow)])
@PROGRAMS
def test_everything_ends(tmp_path: Path, program: str, role: str, turn: int) -> None:
    """Another seed in each run; those of two roles stand for all flush strategies."""
    seed = random.Random(seed_of_this_run()).randrange(1_000_000) + 2 * turn + ROLES.index(role)
    run(tmp_path / "store", seed, role, program)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@PROGRAMS
def test_everything_ends_again_and_again(tmp_path: Path, program: str, role: str) -> None:
    for seed in range(100, 400):
        run(tmp_path / str(seed), seed, role, program)


@pytest.mark.parametrize("times", [8, pytest.param(300, marks=pytest.mark.slow)])
def test_a_child_forked_within_the_first_put_of_a_thread_puts(tmp_path: Path, times: int) -> None:
    # A name that compiled code interned at its first use made every seventh child wait forever.
    errors = tmp_path / "errors"
    for number in range(times):
        store = str(tmp_path / str(number))
        with forked.start("tests.liveness.first_put", [store], errors=errors) as process:
            assert process.wait() == 0, errors.read_text()
        with lakelog.open(store, mode="read") as found:
            assert sorted(bytes(each.body) for each in found.scan()) == [b"child", b"parent"]


def run(path: Path, seed: int, role: str, program: str) -> None:
    """What was acknowledged is there once."""
    command = [sys.executable, "-W", "ignore", "-m", f"tests.liveness.{program}"]
    done = subprocess.run(
        [*command, str(path), str(seed), role, FLUSHES[seed % 4]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}, {role}:\n{done.stderr}"
    acknowledged = json.loads(done.stdout)
    with lakelog.open(path, mode="read") as store:
        found = [int(bytes(each.body).split(b" ", 1)[0]) for each in store.scan()]
    assert len(found) == len(set(found)), f"seed {seed}, {role}: doubled"
    assert set(acknowledged) <= set(found), f"seed {seed}, {role}: lost"
