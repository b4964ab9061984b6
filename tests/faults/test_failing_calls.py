"""One kind of system call fails, the n-th of its kind, for every n until none is left to fail.

Nothing that was acknowledged is lost, nothing is acknowledged once the store has failed, nothing
hangs, every error is one of lakelog's own, and the next open goes on.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.checking import DURABLE, IN_PAGE_CACHE, check_recovered, kept, need_direct
from tests.faults.conftest import Outcome, Workers
from tests.faults.matrix import (
    FAULTS,
    FEW_ENTRIES,
    HARMLESS,
    NO_ROOM,
    UNUSED,
    covering,
    every_nth,
    named_both,
    some,
)

SAMPLE: Final = {
    "fdatasync": {"writer": "file", "flush": "group-commit"},
    "fsync": {"writer": "staged", "flush": "group-commit"},
    "pwrite": {"writer": "direct", "flush": "inline"},
    "fallocate": {"writer": "mmap", "flush": "timed"},
    "rename": {"writer": "file", "flush": "inline"},
    "pthread_create": {"writer": "direct", "flush": "group-commit"},
    "mmap": {"writer": "file", "flush": "timed"},
}
"""Tried by default, each where it matters most."""
HOUSE: Final = tuple(
    fault
    for fault in FAULTS
    if fault[0]
    in ("fsync", "rename", "unlink", "rmdir", "mmap", "fstat", "stat", "opendir", "fcntl")
)
OTHERS: Final = {"writer": "mmap", "flush": "group-commit"}
SYNCS: Final = ("fdatasync", "fsync")
PATIENT: Final = {"group-commit": {"sync_flush_timeout_ms": 30_000}}
LONGEST_WAIT_SECONDS: Final = 12.0
"""A failure is told at once: nobody waits for the timeout, which only a hanging sync needs."""


def _try(
    faulty: Workers,
    tmp_path: Path,
    settings: Mapping[str, Any],
    fault: tuple[str, str],
    **more: Any,
) -> Outcome:
    path = tmp_path / "store"
    patient = {**settings, **PATIENT} if settings["flush"] in PATIENT else settings
    outcome = faulty.run(path, patient, call=fault[0], error=fault[1], **more)
    try:
        _check_answers(outcome, settings, fault)
        assert fault[0] == "unlink" or not _unfinished(path)
        assert (path / "abort").exists() or not _has_failed(outcome), "it seems to be a clean stop"
        found = check_recovered(path, settings, kept(outcome, settings))
        assert not _refused(outcome) & set(found), "refused, and in the log"
    except Exception as error:
        error.add_note(f"{settings} {fault} {more}: {outcome.failures[:3]}")
        raise
    shutil.rmtree(path)
    if not outcome.fired:
        assert not outcome.failures
    return outcome


def _unfinished(path: Path) -> list[Path]:
    """Segments that were begun and not put in place: a failed try leaves nothing behind."""
    return list((path / "lakelog" / "tmp").glob("*"))


def _has_failed(outcome: Outcome) -> bool:
    """Whether the store was open and failed: the next one must recover it."""
    told = [event for event in outcome.told("failed") if event["failed"] != "open"]
    return any(event["why"].startswith("StoreFailed") for event in told)


def _refused(outcome: Outcome) -> set[str]:
    """Keys of messages of which it was said, one by one, that they are not in the log."""
    return {
        event["failed"]
        for event in outcome.told("failed")
        if isinstance(event["failed"], str) and event["why"].startswith("PutRefused")
    }


def _check_answers(outcome: Outcome, settings: Mapping[str, Any], fault: tuple[str, str]) -> None:
    assert outcome.exit == 0
    answers = [*outcome.told("ack"), *outcome.told("failed")]
    assert max((each.get("seconds", 0) for each in answers), default=0) < LONGEST_WAIT_SECONDS
    acks = outcome.told("ack")
    assert not [each for each in acks if each["after_failure"]], "acknowledged after it had failed"
    if fault[0] in SYNCS and settings["flush"] in DURABLE:
        assert not [each for each in acks if each["after_strike"]], "acknowledged after the sync"
    if fault[1] in HARMLESS:
        assert not outcome.failures
    assert not (fault[0] in UNUSED and outcome.fired)
    if fault[1] in NO_ROOM and fault[0] not in SYNCS and settings["writer"] in IN_PAGE_CACHE:
        assert not _has_failed(outcome), "the store failed for want of room"
    assert not outcome.told("left")


def _sample(
    faulty: Workers,
    tmp_path: Path,
    settings: Mapping[str, Any],
    fault: tuple[str, str],
    workload: str,
) -> None:
    need_direct(settings, tmp_path)
    calls = _try(faulty, tmp_path, settings, fault, nth=0, workload=workload).calls
    unused = UNUSED if workload == "house" else (*UNUSED, "rmdir")
    assert calls or fault[0] in unused, "the shim does not see this call"
    for forever in (False, True):
        for nth in some(calls, 1):
            _try(faulty, tmp_path, settings, fault, nth=nth, forever=forever, workload=workload)


@pytest.mark.sample(10)
@pytest.mark.disk
@pytest.mark.parametrize("fault", FAULTS, ids="-".join)
def test_a_sample_of_calls_fails(faulty: Workers, tmp_path: Path, fault: tuple[str, str]) -> None:
    _sample(faulty, tmp_path, SAMPLE.get(fault[0], OTHERS), fault, "all")


@pytest.mark.disk
@pytest.mark.parametrize("fault", HOUSE, ids="-".join)
def test_a_sample_of_calls_fails_while_house_is_kept(
    faulty: Workers, tmp_path: Path, fault: tuple[str, str]
) -> None:
    _sample(faulty, tmp_path, FEW_ENTRIES, fault, "house")


@pytest.mark.parametrize("workload", ["house", "loop"])
def test_no_thread_can_be_started(faulty: Workers, tmp_path: Path, workload: str) -> None:
    _sample(faulty, tmp_path, FEW_ENTRIES, ("pthread_create", "EAGAIN"), workload)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-ever"])
@pytest.mark.parametrize(("settings", "fault", "workload"), covering(), ids=named_both)
def test_every_nth_call_fails(
    faulty: Workers,
    tmp_path: Path,
    settings: Mapping[str, Any],
    fault: tuple[str, str],
    workload: str,
    forever: bool,
) -> None:
    need_direct(settings, tmp_path)
    more = {"forever": forever, "workload": workload}
    every_nth(lambda nth: _try(faulty, tmp_path, settings, fault, nth=nth, **more))
