"""Crashes and power cuts while segments, and what was built from them, are deleted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import (
    Context,
    Deletion,
    Factory,
    Kind,
    NoSettings,
    Pace,
    SegmentInfo,
    Situation,
)
from lakelog.preallocate import SegmentMaker
from lakelog.testing.crash import CrashPlan, simulate

SAMPLE = 150
LONG = 20_000


class Keeping:
    """Keeps the newest sealed segment."""

    pace = Pace(interval_ms=0, destroy_forcibly_after_ms=0)
    remove_empty_queues = False

    def choose(self, segments: Sequence[SegmentInfo], situation: Situation) -> Sequence[Deletion]:
        return [Deletion(each.start_offset, "surplus") for each in segments[:-1]]


@hookimpl
def lakelog_cleaners() -> list[Factory]:
    """This module is the plugin."""
    return [Factory(Kind.CLEANER, "keeping", NoSettings, _make)]


def _make(settings: NoSettings, context: Context) -> Keeping:
    return Keeping()


def plan(flush: str) -> CrashPlan:
    import lakelog_flush.plugin
    import lakelog_hash_index.plugin

    return CrashPlan(
        flush=flush,
        plugins=[sys.modules[__name__], lakelog_hash_index.plugin, lakelog_flush.plugin],
        settings={
            "cleaner": "keeping",
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
    """A power cut then leaves a gap: the kit must see that."""

    def remove(maker: SegmentMaker, start_offset: int) -> None:
        maker.files.unlink(maker.path(start_offset))

    monkeypatch.setattr(SegmentMaker, "remove", remove)
    outcome = simulate(plan("inline"), 3 * SAMPLE, seed=7, keep=tmp_path)
    assert any("begin" in each.what or "open" in each.what for each in outcome.violations)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("flush", ["inline", "none", "timed", "group-commit"])
def test_what_retention_left_is_whole_in_the_long_run(flush: str, tmp_path: Path) -> None:
    outcome = simulate(plan(flush), LONG, seed=700, keep=tmp_path)
    assert not outcome.violations, outcome
