"""A sample of what the long run does: over every writer and flush strategy, and special plans."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

import lakelog_flush.plugin
import lakelog_hash_index.plugin
from lakelog.files.preallocation import SegmentMaker
from lakelog.hooks import DeletionRate
from lakelog_hash_index import coverage
from lakelog_hash_index.coverage import IndexProgress
from lakelog_hash_index.filewriter import IndexAppender
from lakelog_testing import SurplusCleaner
from lakelog_testing.crash import CrashPlan, simulate
from lakelog_testing.crash.opener import FLUSHES, WRITERS

PAIRS: Final = [*product(WRITERS, FLUSHES)]
LONG: Final = 20_000


def whole(images: int, seed: int, keep: Path, **plan: Any) -> int:
    """Simulate crashes, none of which may break a promise; returns how many images were checked."""
    outcome = simulate(CrashPlan(**plan), images, seed=seed, keep=keep)
    assert not outcome.violations, outcome
    return outcome.images


@pytest.mark.sample(8)
@pytest.mark.both_ways
@pytest.mark.parametrize(("writer", "flush"), PAIRS)
def test_no_promise_is_broken(writer: str, flush: str, tmp_path: Path) -> None:
    assert whole(35, 5, tmp_path, writer=writer, flush=flush) >= 35


@pytest.mark.both_ways
@pytest.mark.parametrize(
    ("images", "seed"),
    [
        pytest.param(300, 5, marks=pytest.mark.slow),
        pytest.param(LONG, 500, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
@pytest.mark.parametrize(("writer", "flush"), PAIRS)
def test_no_promise_is_broken_in_many_images(
    images: int, seed: int, writer: str, flush: str, tmp_path: Path
) -> None:
    whole(images, seed, tmp_path, writer=writer, flush=flush)


@pytest.mark.sample(2)
@pytest.mark.both_ways
@pytest.mark.parametrize("writer", WRITERS)
def test_no_promise_is_broken_after_a_failed_sync(writer: str, tmp_path: Path) -> None:
    whole(25, 6, tmp_path, writer=writer, flush="inline", failing_sync=True)


# --- while segments, and what was built from them, are deleted ---


def cleaning(flush: str) -> dict[str, Any]:
    cleaner = SurplusCleaner(keep=1, pace=DeletionRate(interval_ms=0))
    return {
        "flush": flush,
        "plugins": [cleaner, lakelog_hash_index.plugin, lakelog_flush.plugin],
        "settings": {
            "cleaner": "surplus",
            "consume-queue": {"file_entries": 4},
            "hash-index": {"slots": 4, "entries": 6},
        },
        "cleaning": True,
        "steps": 40,
    }


@pytest.mark.parametrize("flush", ["inline", "none"])
def test_what_retention_left_is_whole_after_a_crash(flush: str, tmp_path: Path) -> None:
    assert whole(50, 7, tmp_path, **cleaning(flush)) >= 50


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("flush", FLUSHES)
def test_what_retention_left_is_whole(flush: str, tmp_path: Path) -> None:
    whole(LONG, 700, tmp_path, **cleaning(flush))


def test_a_directory_that_is_not_synced_between_two_files_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut then leaves a gap, or queues of what is gone: the kit must see that."""

    def remove(maker: SegmentMaker, start_offset: int) -> None:
        maker.files.unlink(maker.path(start_offset))

    monkeypatch.setattr(SegmentMaker, "remove", remove)
    assert simulate(CrashPlan(**cleaning("inline")), 450, seed=7, keep=tmp_path).violations


# --- a store that notes how far its keys are known, at every few records without one ---


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "EVERY_BYTES", 300)
    monkeypatch.setattr(coverage, "AT_THE_END_BYTES", 100)


@pytest.mark.usefixtures("_soon")
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
    whole(75, 31, tmp_path, flush=flush)
    assert True in believed, "nothing of it was tested"


@pytest.mark.usefixtures("_soon")
def test_one_that_stands_for_keys_that_are_not_durable_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are synced before it; if they are lost nevertheless, the last one's place tells it."""
    monkeypatch.setattr(IndexAppender, "flush", lambda _: None)
    monkeypatch.setattr(
        coverage, "IndexProgress", lambda end, _, record: IndexProgress(end, -1, record)
    )
    outcome = simulate(CrashPlan(flush="inline"), 1000, seed=31, keep=tmp_path)
    assert any("key" in each.what for each in outcome.violations), outcome


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("flush", FLUSHES)
def test_every_key_is_found(flush: str, tmp_path: Path) -> None:
    whole(LONG, 3100, tmp_path, flush=flush)
