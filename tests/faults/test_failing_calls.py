"""Each kind of system call fails, the n-th of its kind, for every n until none is left to fail.

Nothing that was acknowledged is lost, nothing is acknowledged once the store has failed, nothing
hangs, every error is one of lakelog's own, and the next open goes on.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.checking import check_recovered
from tests.faults.conftest import Outcome, Workers

FAULTS: Final = (
    ("fdatasync", "EIO"),
    ("fsync", "EIO"),
    ("pwrite", "EIO"),
    ("pwrite", "ENOSPC"),
    ("pwrite", "SHORT"),
    ("fallocate", "ENOSPC"),
    ("fallocate", "EIO"),
    ("rename", "EIO"),
    ("unlink", "EIO"),
    ("ftruncate", "EIO"),
    ("mkdir", "ENOSPC"),
)
HARMLESS: Final = ("SHORT",)
"""Errors that a store gets over by itself."""

SAMPLE: Final = (
    {"writer": "file", "flush": "inline"},
    {"writer": "mmap", "flush": "group-commit"},
)
ALL: Final = tuple(
    {"writer": writer, "flush": flush}
    for writer in ("file", "mmap", "staged", "direct")
    for flush in ("none", "inline", "timed", "group-commit")
)


def _named(settings: Mapping[str, Any]) -> str:
    return "-".join(map(str, settings.values()))


FIRST_FEW: Final = 6
SAMPLE_STRIDE: Final = 9


def _every_nth(
    faulty: Workers,
    tmp_path: Path,
    settings: Mapping[str, Any],
    fault: tuple[str, str],
    stride: int = 1,
) -> None:
    for nth in itertools.chain(range(1, FIRST_FEW), itertools.count(FIRST_FEW, stride)):
        path = tmp_path / f"store-{nth}"
        outcome = faulty.run(path, settings, call=fault[0], error=fault[1], nth=nth)
        _check_answers(outcome, fault[1])
        check_recovered(path, settings, outcome.acks)
        shutil.rmtree(path)
        if not outcome.fired:
            assert not outcome.failures
            return


def _check_answers(outcome: Outcome, error: str) -> None:
    assert outcome.exit == 0
    failed = next((at for at, each in enumerate(outcome.events) if _is_failure(each)), None)
    if failed is not None:
        late = [each for each in outcome.events[failed:] if each.get("ack") in LATER]
        assert not late, "acknowledged after the store had failed"
    if error in HARMLESS:
        assert not outcome.failures


LATER: Final = frozenset(f"first-a{at}" for at in range(8))
"""What is put last of all, and so behind any failure that an earlier put was told of."""


def _is_failure(event: Mapping[str, Any]) -> bool:
    what = str(event.get("failed"))
    return "StoreFailed" in str(event.get("why")) and what not in {*LATER, "close"}


@pytest.mark.parametrize("settings", SAMPLE, ids=_named)
@pytest.mark.parametrize("fault", FAULTS, ids="-".join)
def test_the_first_calls_fail_and_a_sample_of_the_others(
    faulty: Workers, tmp_path: Path, settings: Mapping[str, Any], fault: tuple[str, str]
) -> None:
    _every_nth(faulty, tmp_path, settings, fault, SAMPLE_STRIDE)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("settings", ALL, ids=_named)
@pytest.mark.parametrize("fault", FAULTS, ids="-".join)
def test_every_nth_call_fails_with_every_writer_and_flush_strategy(
    faulty: Workers, tmp_path: Path, settings: Mapping[str, Any], fault: tuple[str, str]
) -> None:
    _every_nth(faulty, tmp_path, settings, fault)
