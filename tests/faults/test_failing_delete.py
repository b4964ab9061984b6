"""A call fails, or the process dies, while a topic is deleted.

The topic is whole afterwards and the call failed, or it is gone for good: never is a part of its
queues left, for nobody who reads, in this process and in others, before and after a reopen.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import lakelog
from lakelog_doctor.check import check
from tests.faults.conftest import Outcome, Workers
from tests.faults.deleting import (
    GONE,
    IN_A_QUEUE,
    QUEUES,
    SETTINGS,
    STAYS,
    WHOLE,
    fill,
    opened,
    put_anew,
    seen,
)
from tests.faults.matrix import every_nth, some
from tests.faults.workload import SEGMENT_BYTES

CALLS: Final = ("unlink", "rmdir", "fsync", "fdatasync", "rename", "open", "pwrite", "ftruncate")
STRIKES: Final = (
    *((call, "EIO") for call in (*CALLS, "pread")),
    ("open", "EMFILE"),
    ("pwrite", "ENOSPC"),
    *((call, "KILL") for call in CALLS),
)
SAMPLE: Final = (
    *((call, "EIO") for call in ("unlink", "rmdir", "fsync", "rename")),
    ("open", "EMFILE"),
    *((call, "KILL") for call in ("unlink", "rmdir", "fsync", "rename")),
)
ALL_THERE: Final = {"queues": WHOLE, "found": QUEUES * IN_A_QUEUE}
NOTHING: Final = {"queues": {}, "found": 0}
ANEW: Final = {"queues": dict.fromkeys(WHOLE, 1), "found": QUEUES}
BOTH: Final = {"queues": dict.fromkeys(WHOLE, IN_A_QUEUE + 1), "found": QUEUES * (IN_A_QUEUE + 1)}
FOLLOWS: Final = ("again", "anew", "nothing")


@attrs.frozen
class Deleting:
    faulty: Workers
    filled: Path
    path: Path

    def run(self, strike: tuple[str, str], nth: int, follows: str, **more: Any) -> Outcome:
        """Let one call fail, and check all that is seen of the topic."""
        shutil.copytree(self.filled, self.path)
        job = {"workload": "delete", "call": strike[0], "error": strike[1], "late": True}
        outcome = self.faulty.run(self.path, {}, run=follows, nth=nth, **job, **more)
        try:
            _check_seen(outcome, follows, forever=bool(more.get("forever")))
            _check_reopened(self.path, outcome)
        except (AssertionError, lakelog.LakelogError) as error:
            error.add_note(f"{strike} {nth} {follows} {more}: {outcome.failures} {outcome.exit}")
            raise
        shutil.rmtree(self.path)
        return outcome


@pytest.fixture
def deleting(faulty: Workers, filled: Path, tmp_path: Path) -> Deleting:
    return Deleting(faulty, filled, tmp_path / "store")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "store"
    fill(path)
    return path


def _check_seen(outcome: Outcome, follows: str, *, forever: bool) -> None:
    for event in [*outcome.told("seen"), *outcome.told("then")]:
        assert event["stays"] == ALL_THERE
    told = {event["by"]: event["seen"] for event in outcome.told("seen")}
    if not told:  # it was killed
        return
    assert all(each in (ALL_THERE, NOTHING) for each in told.values()), told
    if not forever:
        assert told["owner"] == told["reader"] == told["another"]
    is_deleted = outcome.events[1].get("deleted") is True
    assert told["owner"] == (NOTHING if is_deleted or _is_said_gone(outcome) else ALL_THERE)
    if outcome.fired and not is_deleted:
        assert outcome.failures[0]
    then = {event["by"]: event["then"] for event in outcome.told("then")}
    if not then or any("StoreFailed" in each for each in outcome.failures):
        return
    gone = told["owner"] == NOTHING
    expected = {"again": NOTHING, "anew": ANEW if gone else BOTH, "nothing": told["owner"]}
    assert set(map(str, then.values())) == {str(expected[follows])}


def _is_said_gone(outcome: Outcome) -> bool:
    return f"topic {GONE!r} was removed, but some of its files remain" in outcome.failures[0]


def _check_reopened(path: Path, outcome: Outcome) -> None:
    """Readers see it as the next owner does, and it stays so."""
    told = outcome.told("then") or outcome.told("seen")
    with opened(path, mode="read") as reader:
        first = seen(reader)
        assert first in (ALL_THERE, NOTHING, ANEW, BOTH)
        if told and told[0]["by"] == "owner":
            last = next(iter(told[0].values()))
            assert first in (last, NOTHING)
    for _ in range(2):
        with opened(path) as store:
            assert seen(store) == first
            assert seen(store, STAYS) == ALL_THERE
        assert _has_files(path) == (first != NOTHING)
    assert [*check(path, segment_size_bytes=SEGMENT_BYTES, **SETTINGS)] == []
    with opened(path) as store:
        at = put_anew(store)
        assert len(set(at)) == 1
        assert at[0] in (IN_A_QUEUE, IN_A_QUEUE + 1)
        after = {
            str(queue): count + 1
            for queue, count in (first["queues"] or dict.fromkeys(WHOLE, 0)).items()
        }
        assert seen(store)["queues"] == after


def _has_files(path: Path) -> bool:
    folders = ("consumequeue", "consumequeue_ext", "batchconsumequeue")
    return any((path / folder / GONE).exists() for folder in folders)


def test_nothing_fails(deleting: Deleting) -> None:
    for follows in FOLLOWS:
        outcome = deleting.run(("unlink", "EIO"), 0, follows)
        assert outcome.told("deleted")
        assert outcome.calls > QUEUES


@pytest.mark.sample(4)
@pytest.mark.parametrize("strike", SAMPLE, ids="-".join)
def test_a_sample_of_calls_fails(deleting: Deleting, strike: tuple[str, str]) -> None:
    calls = deleting.run((strike[0], "EIO"), 0, "nothing").calls
    for at, nth in enumerate(some(calls, 2)):
        outcome = deleting.run(strike, nth, FOLLOWS[at % len(FOLLOWS)])
        assert outcome.fired or outcome.exit < 0
    if strike[1] != "KILL":
        deleting.run(strike, 1, "nothing", forever=True)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("follows", FOLLOWS)
@pytest.mark.parametrize("strike", STRIKES, ids="-".join)
def test_every_nth_call_fails(deleting: Deleting, strike: tuple[str, str], follows: str) -> None:
    def run(nth: int) -> Outcome:
        outcome = deleting.run(strike, nth, follows)
        return attrs.evolve(outcome, events=[*outcome.events, {"fired": int(outcome.exit < 0)}])

    every_nth(run)
