"""Dispatchers are killed from outside by SIGKILL while a producer appends.

They are killed where they stand still before, inside and after a commit, with the next pass written
or not, at a time by chance within a commit, and at any time. Nothing is lost, nothing is doubled,
each queue keeps its order, and after kills the table holds just what is before its position. What a
kill hit is told by the table's folder: versions, and files that are of no version.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import attrs
import pyarrow as pa
import pytest

from lakelog_lake.bodies.base import Parsed
from lakelog_lake.errors import TemporaryError, WorkerLost
from lakelog_lake.landing.dispatcher import (
    Landed,
    LandingDispatcher,
    LandingWaits,
    WatchdogNotifier,
    until_stopped,
)
from lakelog_lake.landing.targets import TableSpec, targets_for
from lakelog_lake.tasks.engines import processes
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing import program_runs as runs
from plugins.lake.tests.landing.program import Orders, spec
from plugins.lake.tests.landing.program_evidence import (
    PHASES,
    Evidence,
    has_new_metadata,
    hit,
    landed_to,
    look,
)
from plugins.lake.tests.landing.table_specs import (
    Even,
    assert_parsed,
    assert_topics,
    land_spec,
    read_dead,
)
from plugins.lake.tests.landing.tables import SMALL, assert_exactly, keys_of, land_all, make, read

AHEAD = {"ahead": "before", "ahead committed": "after"}
WAYS = ("written", "inside", "committed", "within", "anywhere", "planned", *AHEAD)
ROUNDS = 60
LEAST = 10
MOST_ROUNDS = 150
CHECK_EVERY = 4
_log = logging.getLogger(__name__)


@attrs.define
class Killing:
    """Rounds of one store and table.

    :ivar within_seconds: how long a commit takes, roughly
    """

    store: Path
    kind: str
    table: Path
    within_seconds: float
    hits: Counter[str] = attrs.Factory(Counter)
    ways: Counter[str] = attrs.Factory(Counter)

    def round(self, way: str) -> str:
        """Kill one in this way; what that hit."""
        before = look(self.kind, self.table)
        if self._kill(way, before):
            found = hit(before, look(self.kind, self.table))
            self.hits[found] += 1
            self.ways[f"{way}: {found}"] += 1
            return found
        self.ways[f"{way}: came to its end"] += 1
        return "ended"

    def _kill(self, way: str, before: Evidence) -> bool:
        orders = Orders(self.store, self.kind, self.table, way)
        never = attrs.evolve(orders, phase="never")
        if way == "within":
            return runs.kill_committing(never, self.within_seconds)
        if way == "anywhere":
            return runs.kill_sometime(never, 4 * self.within_seconds)
        if way == "inside" and self.kind == "delta":
            return runs.kill_when(never, partial(has_new_metadata, self.kind, self.table, before))
        return runs.kill_at(orders)

    def check(self) -> None:
        """The table must hold what is before its position, and nothing else."""
        assert_exactly(self.kind, self.table, self._landed())

    def _landed(self) -> list[tuple[object, ...]]:
        end = landed_to(self.kind, self.table)
        return keys_of(self.store, "S", end) if end else []


def finish(store: Path, kind: str, table: Path) -> None:
    """Land what is left, in large passes, and compare."""
    land_all(LandingSource(store, "S"), make(kind, table), TaskLimits())
    assert_exactly(kind, table, keys_of(store, "S"))


def prepared(kind: str, folder: Path) -> Killing:
    make(kind, folder / "t")
    seconds = {"iceberg": 0.15, "delta": 0.01, "parquet": 0.005}
    return Killing(folder / "s", kind, folder / "t", seconds[kind])


def test_a_kill_in_each_phase(tmp_path: Path) -> None:
    killing = prepared("iceberg", tmp_path)
    with runs.producing(killing.store):
        time.sleep(0.3)
        assert killing.round("written") == "before"
        assert killing.round("inside") == "inside"
        assert killing.round("committed") == "after"
        killing.check()
    finish(killing.store, killing.kind, killing.table)


@pytest.mark.parametrize("way", ["ahead", pytest.param("ahead committed", marks=pytest.mark.slow)])
def test_a_kill_with_the_next_pass_written(way: str, tmp_path: Path) -> None:
    """Its files are left over, and its rows land anew."""
    killing = prepared("parquet", tmp_path)
    before = look(killing.kind, killing.table)
    with runs.producing(killing.store):
        while (found := killing.round(way)) == "ended":  # until there is enough for two passes
            time.sleep(0.1)
            before = look(killing.kind, killing.table)
    assert found == AHEAD[way]
    left = look(killing.kind, killing.table)
    assert left.commits - before.commits == (way == "ahead committed")
    assert left.data
    killing.check()
    finish(killing.store, killing.kind, killing.table)
    assert look(killing.kind, killing.table).data == left.data


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_kills(kind: str, tmp_path: Path) -> None:
    killing = prepared(kind, tmp_path)
    with runs.producing(killing.store):
        number = 0
        while number < ROUNDS or not enough(killing.hits):
            time.sleep(0.1)
            killing.round(WAYS[number % len(WAYS)])
            number += 1
            if number % CHECK_EVERY == 0:
                killing.check()
            assert number < MOST_ROUNDS, killing.ways
    finish(killing.store, kind, killing.table)
    last: Evidence = look(kind, killing.table)
    rows = len(keys_of(killing.store, "S"))
    _log.info(
        "%s: %d rounds: %s; %s; %d rows, %d commits, left over %d data files, %d of metadata",
        *(kind, number, dict(killing.hits), dict(sorted(killing.ways.items())), rows),
        *(last.commits, len(last.data), len(last.metadata)),
    )


def enough(hits: Counter[str]) -> bool:
    return min(hits[each] for each in PHASES) >= LEAST


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["topics", "bodies"])
def test_kills_with_several_tables(kind: str, mode: str, tmp_path: Path) -> None:
    several_tables(kind, mode, tmp_path, rounds=20)


@pytest.mark.parametrize("mode", ["topics", pytest.param("bodies", marks=pytest.mark.slow)])
def test_a_kill_with_several_tables(mode: str, tmp_path: Path) -> None:
    several_tables("parquet", mode, tmp_path, rounds=1)


def several_tables(kind: str, mode: str, tmp_path: Path, rounds: int) -> None:
    """Most die between the commits of two tables."""
    store, table = tmp_path / "s", tmp_path / "t"
    killed = 0
    inside = "one committed" if kind == "delta" else "inside"
    with runs.producing(store):
        time.sleep(0.3)
        for number in range(rounds):
            point = ["one committed", inside, "one committed", "written"][number % 4]
            times = 1 if point == "written" else random.randint(1, 2)
            killed += runs.kill_at(Orders(store, kind, table, point, times, mode))
            time.sleep(0.1)
    assert killed > rounds // 2
    land_spec(LandingSource(store, "S"), spec(kind, table, mode), TaskLimits())
    if mode == "topics":
        assert_topics(kind, table, keys_of(store, "S"))
    else:
        good, bad = read(kind, table), read_dead(kind, table)
        assert_parsed(good, bad, store, None)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_dispatchers_for_a_whole_run(kind: str, tmp_path: Path) -> None:
    won, lost = race(kind, tmp_path, seconds=30)
    assert min(won) > 0
    assert sum(lost) > 0, "they never met"


def test_two_dispatchers_at_once(tmp_path: Path) -> None:
    won, _ = race("iceberg", tmp_path, seconds=0.2)
    assert sum(won) > 0


def race(kind: str, tmp_path: Path, seconds: float) -> tuple[list[int], list[int]]:
    """Passes that each of them won, and lost."""
    store, table = tmp_path / "s", tmp_path / "t"
    make(kind, table)
    orders = Orders(store, kind, table, mode="follow")
    found = runs.race(orders, lambda: landed_to(kind, table), seconds)
    land_all(LandingSource(store, "S"), make(kind, table), TaskLimits())  # what is left, at once
    assert_exactly(kind, table, keys_of(store, "S"))
    return found


@attrs.frozen
class Deadly(Even):
    """Kills the process that it is in, as long as there is a file ``flag``."""

    flag: str = ""

    def parse(self, bodies: Any, rows: pa.RecordBatch) -> Parsed:
        if Path(self.flag).exists():
            Path(self.flag).unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().parse(bodies, rows)


@pytest.mark.slow  # two pools of processes have to start
def test_a_dispatcher_goes_on_without_it(source: LandingSource, tmp_path: Path) -> None:
    (flag := tmp_path / "flag").touch()
    spec = TableSpec(f"parquet:{tmp_path / 't'}", parsers={"*": Deadly(flag=str(flag))})
    stop = Event()
    passes: list[Landed] = []
    troubles: list[TemporaryError] = []

    def trouble(error: TemporaryError, seconds: float) -> None:
        if seconds > 0.01:
            troubles.append(error)

    def land() -> Landed | None:
        landed = dispatcher.one_pass()
        if landed is None:
            stop.set()
        return landed

    with processes(2) as engine:
        dispatcher = LandingDispatcher(source, targets_for(spec), engine, SMALL)
        waits = LandingWaits(stop, 0.01, dispatcher, WatchdogNotifier.of_this_process())
        until_stopped(land, passes.append, trouble, waits)
    assert [type(each) for each in troubles] == [WorkerLost]
    assert "was killed" in str(troubles[0])
    assert len(passes) > 1
    good, bad = read("parquet", tmp_path / "t"), read_dead("parquet", tmp_path / "t")
    assert_parsed(good, bad, source.path, None)
