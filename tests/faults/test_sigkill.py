"""SIGKILL at random instants, round after round on one store: what was acknowledged stays.

A killed process loses nothing that reached the page cache, so that this holds for every flush
strategy; what a power cut takes is the crash simulator's to show.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog
from tests.faults.checking import check_recovered
from tests.faults.conftest import Workers
from tests.faults.workload import SEGMENT_BYTES

ROUNDS: Final = 6
LONGEST_SECONDS: Final = 0.4
PAIRS: Final = tuple(
    {"writer": writer, "flush": flush}
    for writer in ("file", "mmap", "direct", "staged")
    for flush in ("none", "timed", "group-commit")
)


def _kill_again_and_again(
    workers: Workers, path: Path, settings: Mapping[str, Any], rounds: int, seed: int
) -> None:
    choose, acks = random.Random(seed), list[str]()
    for at in range(rounds):
        seconds = choose.uniform(0.02, LONGEST_SECONDS)
        outcome = workers.run(
            path,
            settings,
            workload="until-killed",
            run=f"r{at}",
            kill_after_seconds=seconds,
        )
        assert not outcome.failures
        acks += outcome.acks
        if choose.random() < 0.5:
            _look(path, acks)
    assert acks, "each was killed before it put anything"
    check_recovered(path, settings, acks)


def _look(path: Path, acks: list[str]) -> None:
    """A reader beside nobody, before anybody recovered the store."""
    if not path.exists():
        return
    with lakelog.open(path, mode="read", segment_size_bytes=SEGMENT_BYTES) as reader:
        found = {message.properties["KEYS"] for message in reader.scan()}
    assert set(acks) - found == set()


@pytest.mark.parametrize("settings", PAIRS[::5], ids=lambda each: "-".join(each.values()))
def test_killed_at_random_instants(
    workers: Workers, tmp_path: Path, settings: dict[str, str]
) -> None:
    _kill_again_and_again(workers, tmp_path / "store", settings, ROUNDS, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("settings", PAIRS, ids=lambda each: "-".join(each.values()))
def test_killed_hundreds_of_times(
    workers: Workers, tmp_path: Path, settings: dict[str, str]
) -> None:
    for seed in range(10):
        path = tmp_path / f"store-{seed}"
        _kill_again_and_again(workers, path, settings, 20, seed)
