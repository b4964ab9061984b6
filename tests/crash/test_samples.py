"""A sample of what the long run does, over every writer and flush strategy."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from lakelog_testing.crash import CrashPlan, simulate
from lakelog_testing.crash.longrun import FLUSHES, WRITERS

PAIRS = [*product(WRITERS, FLUSHES)]
SOME = [("file", "inline"), ("mmap", "none"), ("staged", "group-commit"), ("direct", "timed")]
SAMPLE = 40
SMALL_SAMPLE = 30
LARGE_SAMPLE = 300
SAMPLE_AFTER_FAILURE = 25
LONG = 20_000


@pytest.mark.sample(4)
@pytest.mark.both_ways
@pytest.mark.parametrize(("writer", "flush"), SOME)
def test_no_promise_is_broken(writer: str, flush: str, tmp_path: Path) -> None:
    check(writer, flush, SAMPLE, tmp_path)


@pytest.mark.sample(6)
@pytest.mark.parametrize(("writer", "flush"), [pair for pair in PAIRS if pair not in SOME])
def test_no_promise_is_broken_by_another_pair(writer: str, flush: str, tmp_path: Path) -> None:
    check(writer, flush, SMALL_SAMPLE, tmp_path)


@pytest.mark.slow
@pytest.mark.both_ways
@pytest.mark.parametrize(("writer", "flush"), PAIRS)
def test_no_promise_is_broken_by_any_pair(writer: str, flush: str, tmp_path: Path) -> None:
    check(writer, flush, LARGE_SAMPLE, tmp_path)


def check(writer: str, flush: str, images: int, keep: Path) -> None:
    outcome = simulate(CrashPlan(writer=writer, flush=flush), images, seed=5, keep=keep)
    assert not outcome.violations, outcome
    assert outcome.images >= images


@pytest.mark.sample(4)
@pytest.mark.both_ways
@pytest.mark.parametrize("writer", WRITERS)
def test_no_promise_is_broken_after_a_failed_sync(writer: str, tmp_path: Path) -> None:
    plan = CrashPlan(writer=writer, flush="inline", failing_sync=True)
    outcome = simulate(plan, SAMPLE_AFTER_FAILURE, seed=6, keep=tmp_path)
    assert not outcome.violations, outcome


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.both_ways
@pytest.mark.parametrize(("writer", "flush"), PAIRS)
def test_no_promise_is_broken_in_the_long_run(writer: str, flush: str, tmp_path: Path) -> None:
    outcome = simulate(CrashPlan(writer=writer, flush=flush), LONG, seed=500, keep=tmp_path)
    assert not outcome.violations, outcome
