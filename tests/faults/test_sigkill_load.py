"""SIGKILL under load: eight threads put, one by one, in batches and in the background.

The process is killed once it has told a random number of answers, hundreds in each round. What was
acknowledged stays where that was said to be (see :func:`tests.faults.checking.kept` for what each
pair of writer and flush strategy promises), each producer's messages stay in order and without a
gap, and nothing is there that was never put. In the long run a reader in a third process follows
some of it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.checking import check_recovered, kept, places_of, takes_direct
from tests.faults.conftest import Workers
from tests.faults.following import check_followed, followed
from tests.faults.load import Answers
from tests.faults.matrix import ALL, named

ROUNDS: Final = 3
SEEDS: Final = 7
EVENTS: Final = (200, 700)
FEW_EVENTS: Final = (50, 300)
SAMPLE: Final = {"writer": "file", "flush": "timed"}


def _rounds(
    workers: Workers,
    path: Path,
    settings: Mapping[str, Any],
    seed: int,
    *,
    rounds: int = ROUNDS,
    events: tuple[int, int] = EVENTS,
) -> Answers:
    """What was acknowledged, and is there."""
    choose, answers = random.Random(seed), Answers()
    for at in range(rounds):
        outcome = workers.run(
            path,
            settings,
            workload="load",
            run=f"r{at}",
            kill_after_events=choose.randint(*events),
        )
        assert not outcome.failures
        assert len(outcome.acks) >= events[0] - 1
        answers.add(outcome.told("ack"), kept(outcome, settings))
        answers.check(places_of(path, settings))
    check_recovered(path, settings, answers.must)
    return answers


def _followed_rounds(workers: Workers, path: Path, settings: Mapping[str, Any]) -> Answers:
    """A reader looks on."""
    with followed(path, settings) as told:
        answers = _rounds(workers, path, settings, seed=0)
    check_followed(told, answers.must)
    return answers


@pytest.mark.disk
def test_killed_under_load(workers: Workers, tmp_path: Path) -> None:
    _rounds(workers, tmp_path / "store", SAMPLE, seed=0, rounds=2, events=FEW_EVENTS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("settings", ALL, ids=named)
def test_killed_under_load_again_and_again(
    workers: Workers, tmp_path: Path, settings: Mapping[str, Any], record_property: Any
) -> None:
    if settings["writer"] == "direct" and not takes_direct(tmp_path):
        pytest.skip("the file system of the temporary folder takes no O_DIRECT")
    (tmp_path / "followed").mkdir()
    answers = [_followed_rounds(workers, tmp_path / "followed" / "store", settings)]
    answers += [
        _rounds(workers, tmp_path / f"store-{seed}", settings, seed) for seed in range(1, SEEDS)
    ]
    record_property("acks", sum(len(each.places) for each in answers))
