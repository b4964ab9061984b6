"""A sample of what the long run does, over every writer and flush strategy."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from lakelog_testing.crash import CrashPlan, simulate
from lakelog_testing.crash.longrun import FLUSHES, WRITERS

SAMPLE = 60
SAMPLE_AFTER_FAILURE = 40
LONG = 20_000


@pytest.mark.parametrize(("writer", "flush"), [*product(WRITERS, FLUSHES)])
def test_no_promise_is_broken(writer: str, flush: str, tmp_path: Path) -> None:
    outcome = simulate(CrashPlan(writer=writer, flush=flush), SAMPLE, seed=5, keep=tmp_path)
    assert not outcome.violations, outcome
    assert outcome.images >= SAMPLE


@pytest.mark.parametrize("writer", WRITERS)
def test_no_promise_is_broken_after_a_failed_sync(writer: str, tmp_path: Path) -> None:
    plan = CrashPlan(writer=writer, flush="inline", failing_sync=True)
    outcome = simulate(plan, SAMPLE_AFTER_FAILURE, seed=6, keep=tmp_path)
    assert not outcome.violations, outcome


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("writer", "flush"), [*product(WRITERS, FLUSHES)])
def test_no_promise_is_broken_in_the_long_run(writer: str, flush: str, tmp_path: Path) -> None:
    outcome = simulate(CrashPlan(writer=writer, flush=flush), LONG, seed=500, keep=tmp_path)
    assert not outcome.violations, outcome
