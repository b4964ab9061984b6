"""Dispatchers that land in S3: killed from outside, two at once, and with answers that are lost."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing import program_runs as runs
from plugins.lake.tests.landing.tables import keys_of, land_all
from plugins.lake.tests.remote.servers import Aws
from plugins.lake.tests.remote.somewhere import Somewhere

ALL = ["delta", "sql", "glue", pytest.param("rest", marks=pytest.mark.java)]
WAYS = ("written", "inside", "committed", "within", "anywhere")
WITHIN_SECONDS = 0.5
_log = logging.getLogger(__name__)


@pytest.mark.parametrize("place", ["sql"], indirect=True)
def test_a_few_kills(place: Somewhere, tmp_path: Path, aws: Aws) -> None:
    survives(place, tmp_path / "s", aws, rounds=3)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("place", ALL, indirect=True)
def test_many_kills(place: Somewhere, tmp_path: Path, aws: Aws) -> None:
    survives(place, tmp_path / "s", aws, rounds=40)


def survives(place: Somewhere, store: Path, aws: Aws, rounds: int) -> None:
    """After each kill the table holds what is before its position, and at the end everything."""
    place.made()
    killed: Counter[str] = Counter()
    with runs.producing(store):
        time.sleep(0.3)
        for number in range(rounds):
            way = WAYS[number % len(WAYS)]
            if number >= len(WAYS):
                aws.lose(random.randint(0, 2), place.prefix)
            killed[way] += kill(place, store, way)
            aws.lose(0, "none")
            end = place.landed_to()
            place.assert_exactly(keys_of(store, "S", end) if end else [])
            time.sleep(0.1)
    land_all(LandingSource(store, "S"), place.made(), TaskLimits())
    place.assert_exactly(keys_of(store, "S"))
    left = check_files(place, aws)
    assert killed["written"]
    _log.info("%s: killed %s; %d data files left over", place.prefix, dict(killed), left)


def kill(place: Somewhere, store: Path, way: str) -> bool:
    orders = place.orders(store)
    if way == "within":
        return runs.kill_committing(orders, WITHIN_SECONDS)
    if way == "anywhere":
        return runs.kill_sometime(orders, 4 * WITHIN_SECONDS)
    if way == "inside" and "_write_metadata" not in writes(place):
        return runs.kill_committing(orders, WITHIN_SECONDS)
    return runs.kill_at(place.orders(store, way))


def writes(place: Somewhere) -> str:
    """What writes the metadata of a commit here; deltalake and a REST server do it themselves."""
    is_here = place.kind == "catalog" and place.storage["type"] != "rest"
    return "_write_metadata" if is_here else ""


def check_files(place: Somewhere, aws: Aws) -> int:
    """Those that the table names are there; all are whole; how many are left over."""
    seen = {each for each in aws.objects(place.prefix) if each.endswith(".parquet")}
    data = {each for each in seen if "_delta_log" not in each}
    assert place.named() <= data
    for each in data:
        content = aws.content(each)
        assert content[:4] == content[-4:] == b"PAR1", each
    return len(data - place.named())


@pytest.mark.parametrize("place", ["delta"], indirect=True)
def test_two_dispatchers_at_once(place: Somewhere, tmp_path: Path) -> None:
    won, _ = race(place, tmp_path / "s", seconds=0.2)
    assert sum(won) > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", ALL, indirect=True)
def test_two_dispatchers_for_a_whole_run(place: Somewhere, tmp_path: Path) -> None:
    won, lost = race(place, tmp_path / "s", seconds=30)
    assert sum(won) > 0
    assert sum(lost) > 0, "they never met"


def race(place: Somewhere, store: Path, seconds: float) -> tuple[list[int], list[int]]:
    """Passes that each of them won, and lost."""
    place.made()
    found = runs.race(place.orders(store, mode="follow"), place.landed_to, seconds)
    land_all(LandingSource(store, "S"), place.made(), TaskLimits())
    place.assert_exactly(keys_of(store, "S"))
    return found
