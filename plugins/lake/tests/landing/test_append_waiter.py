"""When the next pass begins: what wakes a dispatcher that has found nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import attrs
import pytest

from lakelog import Message
from lakelog.log.reading import flush_wait as flushwait
from lakelog_lake.landing import waiting as newcoming
from lakelog_lake.landing.dispatcher import LandingDispatcher, LandingSource
from lakelog_lake.landing.targets import TableSpec, targets_for
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.ranges import TaskLimits
from plugins.lake.tests.stores import filled, open_small

LATE_SECONDS = 20.0
COUNT = 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "s", COUNT)


@pytest.fixture
def lander(path: Path, tmp_path: Path) -> Iterator[LandingDispatcher]:
    targets = targets_for(TableSpec(f"parquet:{tmp_path / 't'}"))
    made = LandingDispatcher(LandingSource(path, "S"), targets, in_process, TaskLimits())
    yield made
    made.close()


@attrs.define
class Waiting:
    """A dispatcher that has landed all, and waits in a thread."""

    lander: LandingDispatcher
    stop: Event = attrs.Factory(Event)
    ticks: int = 0

    def __call__(self) -> float:
        begun = time.monotonic()
        self.lander.newcoming.wait(self.stop, 0.05, self._tick)
        return time.monotonic() - begun

    def _tick(self) -> None:
        self.ticks += 1


def all_landed(lander: LandingDispatcher) -> Waiting:
    while lander.one_pass() is not None:
        pass
    return Waiting(lander)


def test_a_put_wakes_it(
    path: Path, lander: LandingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newcoming, "TICK_SECONDS", 60.0)
    monkeypatch.setattr(flushwait, "LONGEST_SLEEP_S", 60.0)
    with open_small(path, flush="group-commit") as owner, ThreadPoolExecutor(1) as pool:
        waits = all_landed(lander)
        waiting = pool.submit(waits)
        time.sleep(0.1)
        owner.put(Message("t", b"one more"))
        assert waiting.result() < LATE_SECONDS
        landed = lander.one_pass()
    assert landed is not None
    assert landed.rows == 1


def test_beside_an_owner_that_puts_nothing_it_sleeps_on(
    path: Path, lander: LandingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newcoming, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(newcoming, "LONGEST_SECONDS", 0.3)
    with open_small(path):
        waits = all_landed(lander)
        assert waits() >= 0.3
        assert waits.ticks > 1


def test_stop_ends_it(path: Path, lander: LandingDispatcher) -> None:
    with open_small(path), ThreadPoolExecutor(1) as pool:
        waits = all_landed(lander)
        waiting = pool.submit(waits)
        waits.stop.set()
        assert waiting.result() < LATE_SECONDS


def test_another_owner_ends_it(
    path: Path, lander: LandingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newcoming, "TICK_SECONDS", 0.05)
    with open_small(path):
        waits = all_landed(lander)
    with open_small(path):
        assert waits() < LATE_SECONDS


def test_of_a_closed_store_the_files_are_looked_at(
    path: Path, lander: LandingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newcoming, "LONGEST_SECONDS", 0.3)
    _age(path)
    waits = all_landed(lander)
    assert waits() >= 0.3
    with open_small(path) as owner:
        owner.put(Message("t", b"one more"))
    monkeypatch.setattr(newcoming, "LONGEST_SECONDS", 60.0)
    assert waits() < LATE_SECONDS
    landed = lander.one_pass()
    assert landed is not None
    assert landed.rows == 1


def _age(path: Path) -> None:
    """Files that were just written may change again without another time."""
    before = time.time() - 60
    for each in (*path.rglob("*"), path):
        os.utime(each, (before, before))
