"""Crashes of a store that notes how far its keys are known, at every few records without one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from lakelog_hash_index import progress_recorder
from lakelog_hash_index.appending import IndexAppender
from lakelog_hash_index.progress import IndexProgress
from lakelog_testing.crash import CrashPlan, simulate
from lakelog_testing.crash.longrun import FLUSHES

SAMPLE: Final = 100
LONG: Final = 20_000


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_recorder, "EVERY_BYTES", 300)
    monkeypatch.setattr(progress_recorder, "AT_THE_END_BYTES", 100)


@pytest.mark.parametrize("flush", ["inline", "none"])
def test_every_key_is_found_after_a_crash(
    flush: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    believed = []
    holds = IndexProgress.holds

    def counted(self: IndexProgress, *given: object) -> bool:
        believed.append(holds(self, *given))  # type: ignore[arg-type]  # handed on as they came
        return believed[-1]

    monkeypatch.setattr(IndexProgress, "holds", counted)
    outcome = simulate(CrashPlan(flush=flush), SAMPLE, seed=31, keep=tmp_path)
    assert not outcome.violations, outcome
    assert True in believed, "nothing of it was tested"


def test_one_that_stands_for_keys_that_are_not_durable_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are synced before it; if they are lost nevertheless, the last one's place tells it."""
    monkeypatch.setattr(IndexAppender, "flush", lambda _: None)
    monkeypatch.setattr(
        progress_recorder, "IndexProgress", lambda end, _, record: IndexProgress(end, -1, record)
    )
    outcome = simulate(CrashPlan(flush="inline"), 10 * SAMPLE, seed=31, keep=tmp_path)
    assert any("key" in each.what for each in outcome.violations), outcome


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("flush", FLUSHES)
def test_every_key_is_found_in_the_long_run(flush: str, tmp_path: Path) -> None:
    outcome = simulate(CrashPlan(flush=flush), LONG, seed=3100, keep=tmp_path)
    assert not outcome.violations, outcome
