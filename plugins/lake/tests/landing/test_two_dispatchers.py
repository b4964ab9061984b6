"""Two dispatchers of one store and one table, for a whole run: each range lands once."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog_lake.landing.dispatcher import LandingSource
from lakelog_lake.tasks.ranges import TaskLimits
from plugins.lake.tests.landing import program_runs as runs
from plugins.lake.tests.landing.program import Orders
from plugins.lake.tests.landing.program_evidence import landed_to
from plugins.lake.tests.landing.tables import assert_exactly, keys_of, land_all, make


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
