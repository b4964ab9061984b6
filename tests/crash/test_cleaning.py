"""Crashes and power cuts while segments, and what was built from them, are deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.files.preallocation import SegmentMaker
from lakelog.interfaces import DeletionRate
from lakelog_testing import SurplusCleaner
from lakelog_testing.crash import CrashPlan, simulate

SAMPLE = 75
LONG = 20_000


def plan(flush: str) -> CrashPlan:
    import lakelog_flush.plugin
    import lakelog_hash_index.plugin

    cleaner = SurplusCleaner(keep=1, pace=DeletionRate(interval_ms=0, destroy_forcibly_after_ms=0))
    return CrashPlan(
        flush=flush,
        plugins=[cleaner, lakelog_hash_index.plugin, lakelog_flush.plugin],
        settings={
            "cleaner": "surplus",
            "consume-queue": {"file_entries": 4},
            "hash-index": {"slots": 4, "entries": 6},
        },
        cleaning=True,
        steps=40,
    )


@pytest.mark.parametrize("flush", ["inline", "none"])
def test_what_retention_left_is_whole_after_a_crash(flush: str, tmp_path: Path) -> None:
    outcome = simulate(plan(flush), SAMPLE, seed=7, keep=tmp_path)
    assert not outcome.violations, outcome
    assert outcome.images >= SAMPLE


def test_a_directory_that_is_not_synced_between_two_files_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut then leaves a gap, or queues of what is gone: the kit must see that."""

    def remove(maker: SegmentMaker, start_offset: int) -> None:
        maker.files.unlink(maker.path(start_offset))

    monkeypatch.setattr(SegmentMaker, "remove", remove)
    outcome = simulate(plan("inline"), 6 * SAMPLE, seed=7, keep=tmp_path)
    assert outcome.violations


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("flush", ["inline", "none", "timed", "group-commit"])
def test_what_retention_left_is_whole_in_the_long_run(flush: str, tmp_path: Path) -> None:
    outcome = simulate(plan(flush), LONG, seed=700, keep=tmp_path)
    assert not outcome.violations, outcome
