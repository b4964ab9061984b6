"""Calls fail under a reader: it says so, in lakelog's own words, and never serves what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.conftest import Outcome, Workers
from tests.faults.matrix import every_nth, some

SETTINGS: Final = {"writer": "file", "flush": "inline"}
FAULTS: Final = (
    ("pread", "EIO"),
    ("pread", "SHORT"),
    ("open", "EMFILE"),
    ("open", "EIO"),
    ("open", "EACCES"),
    ("mmap", "ENOMEM"),
    ("fstat", "EIO"),
    ("stat", "EIO"),
    ("opendir", "EMFILE"),
    ("fcntl", "ENOLCK"),
    ("pthread_create", "EAGAIN"),
)


@pytest.fixture(scope="module")
def whole(workers: Workers, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    path = tmp_path_factory.mktemp("whole") / "store"
    workers.run(path, SETTINGS)
    return path, [event["seen"] for event in workers.run(path, {}, workload="read").told("seen")]


def _try(
    faulty: Workers, whole: tuple[Path, list[str]], fault: tuple[str, str], **more: Any
) -> Outcome:
    path, keys = whole
    outcome = faulty.run(path, {}, workload="read", call=fault[0], error=fault[1], **more)
    assert outcome.exit == 0
    named = (str(path), "ThreadNotStarted")
    assert not [why for why in outcome.failures if not any(each in why for each in named)]
    assert not outcome.told("left")
    seen = [event["seen"] for event in outcome.told("seen")]
    if outcome.fired and fault[1] != "SHORT":
        assert seen == keys[: len(seen)]
    else:
        assert seen == keys
        assert not outcome.failures
    if len(seen) < len(keys):
        assert outcome.failures, "messages are missing, and nobody said so"
    return outcome


@pytest.mark.parametrize("fault", FAULTS, ids="-".join)
def test_a_sample_of_calls_fails_under_a_reader(
    faulty: Workers, whole: tuple[Path, list[str]], fault: tuple[str, str]
) -> None:
    calls = _try(faulty, whole, fault, nth=0).calls
    for nth in some(calls, 2):
        _try(faulty, whole, fault, nth=nth)
    _try(faulty, whole, fault, nth=max(1, calls // 2), forever=True)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-ever"])
@pytest.mark.parametrize("fault", FAULTS, ids="-".join)
def test_every_nth_call_fails_under_a_reader(
    faulty: Workers,
    whole: tuple[Path, list[str]],
    fault: tuple[str, str],
    forever: bool,
) -> None:
    every_nth(lambda nth: _try(faulty, whole, fault, nth=nth, forever=forever))
