"""Calls fail, or the process dies, while a damaged store is being opened, recovered or repaired.

Whatever happens meanwhile, afterwards the same messages are there as without it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import lakelog
from lakelog_testing.samples import copy_store
from tests.faults.checking import check_recovered, keys_of
from tests.faults.conftest import Outcome, Workers
from tests.faults.matrix import FAULTS, every_nth
from tests.faults.workload import SEGMENT_BYTES, TOPIC, body_of

SETTINGS: Final = {"writer": "file", "flush": "inline"}
JOBS: Final = ("open", "recover", "repair")
DEATHS: Final = tuple(
    (call, "KILL")
    for call in ("fdatasync", "fsync", "pwrite", "rename", "unlink", "ftruncate", "mkdir", "open")
)
STRIKES: Final = (*FAULTS, *DEATHS)

SAMPLE: Final = (
    (("fdatasync", "EIO"), 3),
    (("fsync", "EIO"), 5),
    (("pwrite", "ENOSPC"), 4),
    (("open", "EMFILE"), 30),
    (("pread", "EIO"), 20),
    (("rename", "EIO"), 1),
    (("pwrite", "KILL"), 6),
    (("fdatasync", "KILL"), 8),
)


@attrs.frozen
class Ruin:
    """A store that was not closed, its log damaged in the middle and torn at its end.

    :ivar keys: what must be there in the end, in order
    """

    path: Path
    keys: list[str]


@pytest.fixture(scope="module")
def ruin(faulty: Workers, tmp_path_factory: pytest.TempPathFactory) -> Ruin:
    """Made by a process that was killed; then damaged."""
    folder = tmp_path_factory.mktemp("ruin")
    path = folder / "store"
    outcome = faulty.run(path, SETTINGS, workload="until-killed", kill_after_events=60)
    assert len(outcome.acks) > 10
    _damage(path, outcome)
    whole = folder / "whole"
    copy_store(path, whole)
    keys = keys_of(whole, SETTINGS)
    assert len(set(outcome.acks) - set(keys)) == 1, "the damage hits one message"
    return Ruin(path, keys)


def _damage(path: Path, outcome: Outcome) -> None:
    """A bad body in the middle; half a record at the end; queue files that are gone."""
    _tear(path, _end(path))
    key = outcome.acks[len(outcome.acks) // 2]
    for segment in sorted((path / "commitlog").iterdir()):
        data = bytearray(segment.read_bytes())
        at = data.find(body_of(key))
        if at >= 0:
            data[at] ^= 1
            segment.write_bytes(data)
            break
    else:
        raise AssertionError("the body is in no segment")
    shutil.rmtree(path / "consumequeue" / TOPIC / "1")


def _tear(path: Path, end: int) -> None:
    """Leave bytes behind the last record that are no record."""
    with _segment(path, end).open("r+b") as file:
        file.seek(end % SEGMENT_BYTES)
        file.write(b"\xda" * min(100, SEGMENT_BYTES - end % SEGMENT_BYTES))


def _check_tail(path: Path) -> None:
    """Nothing stands behind the log's end in its last segment."""
    end = _end(path)
    tail = _segment(path, end).read_bytes()[end % SEGMENT_BYTES :]
    assert not any(tail), "what was cut can show up again"


def _end(path: Path) -> int:
    with lakelog.open(path, mode="read", segment_size_bytes=SEGMENT_BYTES) as store:
        return store.max_offset


def _segment(path: Path, offset: int) -> Path:
    return path / "commitlog" / f"{offset // SEGMENT_BYTES * SEGMENT_BYTES:020}"


def _try(
    faulty: Workers, tmp_path: Path, ruin: Ruin, job: str, strike: tuple[str, str], **more: Any
) -> Outcome:
    path = tmp_path / "store"
    copy_store(ruin.path, path)
    outcome = faulty.run(path, SETTINGS, workload=job, call=strike[0], error=strike[1], **more)
    try:
        if job == "repair":
            lakelog.repair(path, segment_size_bytes=SEGMENT_BYTES, settings=SETTINGS)
        found = check_recovered(path, SETTINGS, ruin.keys, lambda: _check_tail(path))
        assert found == ruin.keys
    except Exception as error:
        error.add_note(f"{job} {strike} {more}: {outcome.failures[:3]}")
        raise
    shutil.rmtree(path)
    return outcome if strike[1] != "KILL" else attrs.evolve(outcome, events=_death(outcome))


def _death(outcome: Outcome) -> list[dict[str, Any]]:
    """A process that is dead tells of no strike."""
    return [*outcome.events, {"fired": int(outcome.exit != 0)}]


@pytest.mark.parametrize("job", JOBS)
def test_a_sample_of_calls_fails_in_a_recovery(
    faulty: Workers, tmp_path: Path, ruin: Ruin, job: str
) -> None:
    chosen = SAMPLE[JOBS.index(job) % 2 :: 2]  # half of them, as recoveries are much alike
    outcomes = [_try(faulty, tmp_path, ruin, job, strike, nth=nth) for strike, nth in chosen]
    assert sum(bool(outcome.fired) for outcome in outcomes) >= len(chosen) - 2


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for-ever"])
@pytest.mark.parametrize("strike", STRIKES, ids="-".join)
@pytest.mark.parametrize("job", JOBS)
def test_every_nth_call_fails_in_a_recovery(
    faulty: Workers,
    tmp_path: Path,
    ruin: Ruin,
    job: str,
    strike: tuple[str, str],
    forever: bool,
) -> None:
    if forever and strike[1] == "KILL":
        pytest.skip("nobody dies twice")
    every_nth(lambda nth: _try(faulty, tmp_path, ruin, job, strike, nth=nth, forever=forever))
