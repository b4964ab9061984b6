"""Directories of either store that was killed under load: both recover the same of them.

The owner of lakelog is killed once, or again and again in one store of tiny segments that retention
deletes.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest

import lakelog
from lakelog import Message
from lakelog_testing.samples import copy_store
from tests.support.killing import killed
from tests.support.rows import Row, by_kind, difference
from tests.support.twostores import JAVA, SETTINGS, compare, derived, ours, recovered

if TYPE_CHECKING:
    from tests.oracle.java import Oracle

PAIRS: Final = [
    (writer, flush)
    for writer in ("file", "mmap", "staged", "direct")
    for flush in ("timed", "group-commit")
]
SAMPLE: Final = [("file", "timed"), ("staged", "group-commit")]
IN_MEMORY: Final = {("staged", "timed"), ("direct", "timed")}
"""Here puts are acknowledged while their bytes are in buffers of the process."""


def kill_a_store(path: Path, writer: str, flush: str, seed: int, seconds: float) -> set[int]:
    """Leave a store whose owner was killed; offsets of what it had acknowledged."""
    settings = json.dumps({**SETTINGS, "writer": writer, "flush": flush})
    command = [sys.executable, "-m", "tests.support.putting", str(path), settings, str(seed)]
    return {int(line) for line in killed(command, seconds)}


LED_ON: Final = ("MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL", "UNDECODABLE")
"""The last one is of the unit for offset 0 of the log, see :func:`without_deleted_units`."""
SMALL_SEGMENT: Final = 16 << 10
CLEANED: Final[dict[str, Any]] = {
    **SETTINGS,
    "segment_size_bytes": SMALL_SEGMENT,
    "cleaner": "retention",
    "retention": {"max_segments": 6, "delete_interval_ms": 0, "file_reserved_hours": 0},
    "maintenance": {"first_round_ms": 10, "interval_ms": 20},
}
CLEANED_JAVA: Final = {**JAVA, "mappedFileSizeCommitLog": str(SMALL_SEGMENT)}


def check_rounds_of_one_store(
    oracle: Oracle, path: Path, writer: str, flush: str, rounds: int
) -> None:
    """Kill the owner of one store again and again; each owner goes on where the last one was.

    :param rounds: how often at least; rounds follow until retention has deleted something
    """
    settings = json.dumps({**CLEANED, "writer": writer, "flush": flush})
    acknowledged: set[int] = set()
    minimum = seed = 0
    while seed < rounds or not minimum:
        seed += 1
        command = [sys.executable, "-m", "tests.support.putting", str(path), settings, str(seed)]
        acknowledged |= {int(line) for line in killed(command, random.Random(seed).uniform(0, 0.6))}
        copy = path.with_name(f"{path.name}-{seed}")
        copy_store(path, copy)
        lakelog.recover(copy, **CLEANED)
        found = ours(copy, CLEANED_JAVA)
        rows = by_kind(found)
        real = oracle.dump(path, CLEANED_JAVA)
        compare(path, found, without_deleted_units(real, rows["queue"]))
        minimum = rows["store"][0]["minPhyOffset"]
        if (writer, flush) not in IN_MEMORY:
            there = {row["physOffset"] for row in rows["rec"]}
            assert {offset for offset in acknowledged if offset >= minimum} <= there
        real = oracle.dump(copy, CLEANED_JAVA, in_place=True)
        assert difference(found, without_deleted_units(real, rows["queue"])) == ""
        shutil.rmtree(copy)


def without_deleted_units(real: list[Row], queues: list[Row]) -> list[Row]:
    """The rows of the real store, its queues beginning where the log does.

    A kill can come between the deletion of segments and that of the queues' files. The real store
    looks for the first unit of the log in the first file of a queue only: it answers reads of older
    units, or of files that are gone, with the offset to go on at. Offset 0 of the log, and no other
    one that is gone, it looks for in the first segment that is there, and gives what stands there.
    """
    minimum = by_kind(real)["store"][0]["minPhyOffset"]
    begins = {(row["topic"], row["queueId"]): row["minOffset"] for row in queues}
    rows = list[Row]()
    for row in real:
        if row["kind"] == "msgerr" and row["status"] in LED_ON:
            assert row["offset"] < row["next"] <= begins[row["topic"], row["queueId"]]
        elif row["kind"] == "msg" and row["cqPos"] == 0 < minimum:
            assert row["physOffset"] == minimum
            assert row["cqOffset"] < begins[row["cqTopic"], row["cqQueueId"]]
        elif row["kind"] == "queue" and row["minOffset"] == 0:
            rows.append({**row, "minOffset": begins[row["topic"], row["queueId"]]})
        else:
            rows.append(row)
    return rows


def check_round(
    oracle: Oracle, path: Path, writer: str, flush: str, *, seed: int, seconds: float
) -> None:
    acknowledged = kill_a_store(path, writer, flush, seed, seconds)
    assert (path / "abort").exists()
    copy = recovered(path)
    found = ours(copy)
    compare(path, found, oracle.dump(path, JAVA))
    if (writer, flush) not in IN_MEMORY:
        assert acknowledged <= {row["physOffset"] for row in by_kind(found)["rec"]}
    if not by_kind(found)["rec"]:
        return  # killed before anything left its buffers; the real store makes other empty files
    # A recovery of lakelog leaves a clean stop: the real store takes all of it as it is.
    assert not (copy / "abort").exists()
    before = derived(copy)
    assert any(name.startswith("index") for name in before) == bool(by_kind(found)["query"])
    assert difference(found, oracle.dump(copy, JAVA, in_place=True)) == ""
    assert derived(copy) == before


@pytest.mark.parametrize(("writer", "flush"), SAMPLE)
def test_the_real_store_reads_the_same_of_a_killed_store(
    writer: str, flush: str, oracle: Oracle, tmp_path: Path
) -> None:
    check_round(oracle, tmp_path / "store", writer, flush, seed=1, seconds=0.3)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("writer", "flush"), PAIRS)
def test_killed_at_many_instants(writer: str, flush: str, oracle: Oracle, tmp_path: Path) -> None:
    """The longest runs are longer than the margin of a checkpoint, three seconds."""
    for seed, seconds in enumerate((0.01, 0.1, 0.2, 0.5, 1, 2, 5, 9)):
        check_round(oracle, tmp_path / f"{seed}", writer, flush, seed=seed, seconds=seconds)


def test_killed_twice_while_retention_deletes(oracle: Oracle, tmp_path: Path) -> None:
    check_rounds_of_one_store(oracle, tmp_path / "store", "file", "group-commit", rounds=2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("writer", "flush"), PAIRS)
def test_killed_again_and_again_while_retention_deletes(
    writer: str, flush: str, oracle: Oracle, tmp_path: Path
) -> None:
    check_rounds_of_one_store(oracle, tmp_path / "store", writer, flush, rounds=13)


# --- the real store is killed: lakelog recovers all that it does ---------------------------------

FLUSHES: Final = ("SYNC_FLUSH", "ASYNC_FLUSH")
MORE: Final = 40


@attrs.frozen
class Put:
    """An acknowledged put: so many records in these bytes of the log."""

    offset: int
    size: int
    records: int


def kill_rocketmq(oracle: Oracle, path: Path, flush: str, seed: int, seconds: float) -> list[Put]:
    """Leave a store that was killed under load; what it had acknowledged."""
    arguments = ["--seed", str(seed)]
    arguments += ["--pause-ms", str(1 + int(seconds))]  # long runs, but not too many messages
    command = oracle.command("PutOn", path, arguments, {**JAVA, "flushDiskType": flush})
    return [Put(*map(int, line.split())) for line in killed(command, seconds)]


def check_rocketmq(oracle: Oracle, path: Path, flush: str, *, seed: int, seconds: float) -> None:
    acknowledged = kill_rocketmq(oracle, path, flush, seed, seconds)
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
    check_rocketmq(oracle, tmp_path / "store", flush, seed=1, seconds=0.5)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("flush", FLUSHES)
def test_rocketmq_killed_at_many_instants(flush: str, oracle: Oracle, tmp_path: Path) -> None:
    """The longest runs are longer than the margin of a checkpoint, three seconds."""
    for seed, seconds in enumerate((0, 0.05, 0.1, 0.3, 0.6, 1, 1.5, 3, 6, 9)):
        check_rocketmq(oracle, tmp_path / f"{seed}", flush, seed=seed, seconds=seconds)
