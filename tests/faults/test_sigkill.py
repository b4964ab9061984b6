"""SIGKILL, round after round on one store: what was acknowledged stays.

See :func:`tests.faults.checking.kept` for what each pair of writer and flush strategy promises. A
process is killed at a random instant; or under load, in which eight threads put, one by one, in
batches and in the background, once it has told a random number of answers. Then each producer's
messages stay in order and without a gap, too, and nothing is there that was never put. A reader in
a third process follows all the while.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import lakelog
from tests.faults.checking import check_recovered, kept, need_direct, places_of
from tests.faults.conftest import Outcome, Workers
from tests.faults.jobs import STOP
from tests.faults.load import IN_FLIGHT
from tests.faults.matrix import ALL, named
from tests.faults.workload import SEGMENT_BYTES

ROUNDS: Final = 4
LONGEST_SECONDS: Final = 0.4
LONGER_SECONDS: Final = 10.0
"""For a machine so busy that nothing was put in any round; twice is enough."""
LOADED_ROUNDS: Final = 3
EVENTS: Final = (200, 700)
FEW_EVENTS: Final = (50, 300)
SAMPLE: Final = (
    {"writer": "mmap", "flush": "timed"},
    {"writer": "staged", "flush": "group-commit"},
)


@contextmanager
def followed(path: Path, settings: Mapping[str, Any]) -> Iterator[set[str]]:
    """Have a process read the store meanwhile.

    Nothing moves before its eyes, and none of the keys in the set that is yielded vanishes.
    """
    must = set[str]()
    with Workers.started() as reader, ThreadPoolExecutor() as pool:
        reader.run(path, settings, workload="read")  # so that it is awake when things begin
        job = {"workload": "follow", "patience_seconds": 1000, "call": None}
        following = pool.submit(reader.run, path, settings, **job)
        try:
            yield must
        finally:
            path.with_name(STOP).touch()
        told = following.result()
    assert told.exit == 0
    assert max(event["looked"] for event in told.told("looked")) > 0
    assert not told.has("moved")
    assert must.isdisjoint(key for event in told.told("vanished") for key in event["vanished"])


# --- at random instants ---


def _rounds(
    workers: Workers, path: Path, settings: Mapping[str, Any], rounds: int, seed: int
) -> None:
    choose = random.Random(seed)
    path.parent.mkdir()
    with followed(path, settings) as must:
        for at in range(rounds + 2):
            if at >= rounds and must:
                break
            longest = LONGEST_SECONDS if at < rounds else LONGER_SECONDS
            seconds = choose.uniform(longest / 20, longest)
            job = {"workload": "until-killed", "run": f"r{at}", "kill_after_seconds": seconds}
            outcome = workers.run(path, settings, **job)
            assert not outcome.failures
            must.update(kept(outcome, settings))
            if choose.random() < 0.5:
                _look(path, must)
        assert must, "each was killed before it put anything"
        check_recovered(path, settings, must)


def _look(path: Path, must: set[str]) -> None:
    """A reader beside nobody, before anybody recovered the store."""
    if (path / "commitlog").exists():
        with lakelog.open(path, mode="read", segment_size_bytes=SEGMENT_BYTES) as reader:
            assert must <= {message.properties["KEYS"] for message in reader.scan()}


@pytest.mark.parametrize("settings", SAMPLE, ids=named)
def test_killed_at_random_instants(
    workers: Workers, tmp_path: Path, settings: Mapping[str, Any]
) -> None:
    _rounds(workers, tmp_path / "1" / "store", settings, ROUNDS, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("settings", ALL, ids=named)
def test_killed_hundreds_of_times(
    workers: Workers, tmp_path: Path, settings: Mapping[str, Any]
) -> None:
    need_direct(settings, tmp_path)
    for seed in range(10):
        _rounds(workers, tmp_path / str(seed) / "store", settings, 20, seed)


# --- under load ---


@attrs.frozen
class Answers:
    """Where all messages were put that were acknowledged, round after round, and which must stay.

    :ivar places: where each acknowledged one was put
    :ivar must: those that must be there
    """

    places: dict[str, int] = attrs.field(factory=dict)
    must: set[str] = attrs.field(factory=set)

    def add(self, outcome: Outcome, kept: Iterable[str]) -> None:
        self.places.update((ack["ack"], ack["at"]) for ack in outcome.told("ack"))
        self.must.update(kept)

    def check(self, found: Mapping[str, int]) -> None:
        """Compare with keys and their places as a reader sees them, in the log's order.

        What was acknowledged stands where that was said. Of each producer there is a run without
        a gap, in order, that ends at most as far behind its last answer as it puts ahead.
        """
        assert self.must - set(found) == set()
        assert {key for key in found if self.places.get(key, found[key]) != found[key]} == set()
        answered, ends = dict[str, int](), dict[str, int]()
        for name, number in map(_parsed, self.places):
            answered[name] = max(number, answered.get(name, -1))
        for name, number in map(_parsed, found):
            assert number == ends.get(name, -1) + 1, f"{name}-{number} behind {ends.get(name)}"
            ends[name] = number
        ahead = {name for name in ends if ends[name] > answered.get(name, -1) + IN_FLIGHT}
        assert ahead == set(), "nobody put so much"


def _parsed(key: str) -> tuple[str, int]:
    name, _, number = key.rpartition("-")
    return name, int(number)


def _loaded_rounds(
    workers: Workers,
    path: Path,
    settings: Mapping[str, Any],
    seed: int,
    *,
    rounds: int = LOADED_ROUNDS,
    events: tuple[int, int] = EVENTS,
) -> Answers:
    """What was acknowledged, and is there."""
    choose, answers = random.Random(seed), Answers()
    for at in range(rounds):
        job = {"workload": "load", "run": f"r{at}", "kill_after_events": choose.randint(*events)}
        outcome = workers.run(path, settings, **job)
        assert not outcome.failures
        assert len(outcome.acks) >= events[0] - 1
        answers.add(outcome, kept(outcome, settings))
        answers.check(places_of(path, settings))
    check_recovered(path, settings, answers.must)
    return answers


@pytest.mark.disk
def test_killed_under_load(workers: Workers, tmp_path: Path) -> None:
    settings = {"writer": "file", "flush": "timed"}
    _loaded_rounds(workers, tmp_path / "store", settings, 0, rounds=2, events=FEW_EVENTS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("settings", ALL, ids=named)
def test_killed_under_load_again_and_again(
    workers: Workers, tmp_path: Path, settings: Mapping[str, Any]
) -> None:
    need_direct(settings, tmp_path)
    path = tmp_path / "followed" / "store"
    path.parent.mkdir()
    with followed(path, settings) as must:
        must.update(_loaded_rounds(workers, path, settings, 0).must)
    for seed in range(1, 7):
        _loaded_rounds(workers, tmp_path / f"store-{seed}", settings, seed)
