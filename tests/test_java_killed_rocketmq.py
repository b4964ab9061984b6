"""Directories of the real store that was killed under load: lakelog recovers all that it does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import pytest

import lakelog
from lakelog import Message
from tests.support.killing import killed
from tests.support.rows import Row, by_kind, difference
from tests.support.twostores import JAVA, SETTINGS, compare, derived, ours, recovered

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

FLUSHES: Final = ("SYNC_FLUSH", "ASYNC_FLUSH")
MORE: Final = 40


@attrs.frozen
class Put:
    """An acknowledged put: so many records in these bytes of the log."""

    offset: int
    size: int
    records: int


def kill_a_store(oracle: Oracle, path: Path, flush: str, seed: int, seconds: float) -> list[Put]:
    """Leave a store that was killed under load; what it had acknowledged."""
    arguments = ["--seed", str(seed)]
    arguments += ["--pause-ms", str(1 + int(seconds))]  # long runs, but not too many messages
    command = oracle.command("PutOn", path, arguments, {**JAVA, "flushDiskType": flush})
    return [Put(*map(int, line.split())) for line in killed(command, seconds)]


def check_round(oracle: Oracle, path: Path, flush: str, *, seed: int, seconds: float) -> None:
    acknowledged = kill_a_store(oracle, path, flush, seed, seconds)
    assert (path / "abort").exists()
    copy = recovered(path)
    found = ours(copy)
    compare(path, found, oracle.dump(path, JAVA))
    check_acknowledged(acknowledged, by_kind(found)["rec"])
    take_turns(oracle, copy, found)


def check_acknowledged(puts: list[Put], records: list[Row]) -> None:
    sizes = {row["physOffset"]: row["storeSize"] for row in records}
    for each in puts:
        at = each.offset
        for _ in range(each.records):
            at += sizes[at]
        assert at == each.offset + each.size
    assert any(each.records > 1 for each in puts) or len(puts) < 20


def take_turns(oracle: Oracle, path: Path, before: list[Row]) -> None:
    """What lakelog adds to it, the real store takes as it is, and builds nothing anew."""
    queues = by_kind(before)["queue"]
    with lakelog.open(path, **SETTINGS) as store:
        for number in range(MORE):
            row = queues[number % len(queues)]
            message = Message(row["topic"], b"more", keys=f"new{number}", queue_id=row["queueId"])
            result = store.put(message)
            assert result.queue_offset == row["maxOffset"] + number // len(queues)
    found = ours(path)
    assert len(by_kind(found)["rec"]) == len(by_kind(before)["rec"]) + MORE
    files = derived(path)
    assert difference(found, oracle.dump(path, JAVA, in_place=True)) == ""
    assert derived(path) == files


@pytest.mark.parametrize("flush", FLUSHES)
def test_lakelog_reads_the_same_of_a_killed_store(
    flush: str, oracle: Oracle, tmp_path: Path
) -> None:
    check_round(oracle, tmp_path / "store", flush, seed=1, seconds=0.5)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("flush", FLUSHES)
def test_killed_at_many_instants(flush: str, oracle: Oracle, tmp_path: Path) -> None:
    """The longest runs are longer than the margin of a checkpoint, three seconds."""
    for seed, seconds in enumerate((0, 0.05, 0.1, 0.3, 0.6, 1, 1.5, 3, 6, 9)):
        check_round(oracle, tmp_path / f"{seed}", flush, seed=seed, seconds=seconds)
