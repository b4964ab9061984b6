"""SIGKILL at random instants, round after round on one store: what was acknowledged stays.

A killed process loses nothing that reached the page cache: with the writers ``file`` and ``mmap``
this holds for every flush strategy, with staged ones for those that wait. A reader in a third
process follows all the while.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from tests.faults.checking import check_recovered, kept, takes_direct
from tests.faults.conftest import Workers
from tests.faults.following import check_followed, followed
from tests.faults.matrix import ALL, named
from tests.faults.workload import SEGMENT_BYTES

ROUNDS: Final = 4
LONGEST_SECONDS: Final = 0.4
LONGER_SECONDS: Final = 10.0
"""For a machine so busy that nothing was put in any round; twice is enough."""
SAMPLE: Final = (
    {"writer": "mmap", "flush": "timed"},
    {"writer": "staged", "flush": "group-commit"},
)


def _kill_again_and_again(
    workers: Workers, path: Path, settings: Mapping[str, Any], rounds: int, seed: int
) -> list[str]:
    """What was acknowledged, and must be there."""
    choose, must = random.Random(seed), list[str]()
    for at in range(rounds + 2):
        if at >= rounds and must:
            break
        longest = LONGEST_SECONDS if at < rounds else LONGER_SECONDS
        outcome = workers.run(
            path,
            settings,
            workload="until-killed",
            run=f"r{at}",
            kill_after_seconds=choose.uniform(longest / 20, longest),
        )
        assert not outcome.failures
        must += sorted(kept(outcome, settings))
        if choose.random() < 0.5:
            _look(path, must)
    assert must, "each was killed before it put anything"
    check_recovered(path, settings, must)
    return must


def _look(path: Path, must: list[str]) -> None:
    """A reader beside nobody, before anybody recovered the store."""
    if not (path / "commitlog").exists():
        return
    with lakelog.open(path, mode="read", segment_size_bytes=SEGMENT_BYTES) as reader:
        found = {message.properties["KEYS"] for message in reader.scan()}
    assert set(must) - found == set()


def _rounds(
    workers: Workers, folder: Path, settings: Mapping[str, Any], rounds: int, seed: int
) -> None:
    if settings["writer"] == "direct" and not takes_direct(folder):
        pytest.skip("the file system of the temporary folder takes no O_DIRECT")
    path = folder / f"seed-{seed}" / "store"
    path.parent.mkdir()
    with followed(path, settings) as told:
        must = _kill_again_and_again(workers, path, settings, rounds, seed)
    check_followed(told, must)


@pytest.mark.parametrize("settings", SAMPLE, ids=named)
def test_killed_at_random_instants(
    workers: Workers, tmp_path: Path, settings: Mapping[str, Any]
) -> None:
    _rounds(workers, tmp_path, settings, ROUNDS, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("settings", ALL, ids=named)
def test_killed_hundreds_of_times(
    workers: Workers, tmp_path: Path, settings: Mapping[str, Any]
) -> None:
    for seed in range(10):
        _rounds(workers, tmp_path, settings, 20, seed)
