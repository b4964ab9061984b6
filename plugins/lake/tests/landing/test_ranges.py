"""What may land: durable records only, of the log that has landed before, cut between records."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lakelog
from lakelog import Message
from lakelog.format.checksum import Fingerprint
from lakelog_lake.errors import WrongLog
from lakelog_lake.log.extent import UNIT
from lakelog_lake.tables.position import Position
from lakelog_lake.tasks import task
from lakelog_lake.tasks.task import TaskLimits, first_offset, next_spans
from plugins.lake.tests.stores import SEGMENT, filled, open_small
from tests.support.fixtures import StoreFixtures


def whole(_: Path) -> None:
    """Queues are as they should be."""


def without_queues(path: Path) -> None:
    shutil.rmtree(path / "consumequeue")


def with_wrong_queues(path: Path) -> None:
    """Each unit leads into the middle of a record."""
    for file in path.glob("consumequeue/*/*/*"):
        units = np.fromfile(file, UNIT)
        units["offset"] += 7
        units.tofile(file)


def with_many_topics(path: Path) -> None:
    for number in range(200):
        (path / "consumequeue" / f"other-{number}" / "0").mkdir(parents=True)


@pytest.mark.parametrize(
    ("change", "walks"),
    [(whole, False), (without_queues, True), (with_wrong_queues, True), (with_many_topics, True)],
)
def test_the_log_is_walked_only_where_queues_do_not_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], walks: bool
) -> None:
    path = filled(tmp_path / "s", 300, segment_size_bytes=1 << 20)
    walked, real = list[int](), task._walked

    def spied(store: lakelog.Store, at: int, target: int, end: int) -> int:
        walked.append(at)
        return real(store, at, target, end)

    monkeypatch.setattr(task, "_walked", spied)
    with lakelog.open(path, mode="read") as store:
        records = list(store.scan())
        change(path)
        spans = next_spans(store, 0, TaskLimits(pass_bytes=60_000, task_bytes=20_000, at_once=2))
    assert bool(walked) is walks
    starts = [each.physical_offset for each in records]
    ends = {each.physical_offset + each.size for each in records}
    assert len(spans) == (1 if walks else 4)
    assert all(a.end == b.start for a, b in itertools.pairwise(spans))
    assert {each.start for each in spans} <= set(starts)
    assert {each.end for each in spans} <= ends | set(starts)
    assert spans[-1].end >= 60_000


@pytest.mark.parametrize(
    ("size", "at_once", "count"),
    [(10, 2, 1), (100, 2, 1), (101, 2, 2), (201, 2, 4), (800, 3, 9), (101, 4, 4), (101, 16, 2)],
)
def test_ranges_end_together(size: int, at_once: int, count: int) -> None:
    """All about as large, and as many as can run at a time, or twice as many, and so on."""
    cuts = TaskLimits(task_bytes=100, at_once=at_once).cuts(size)
    assert len(cuts) == count
    assert cuts[-1] == size
    sizes = [b - a for a, b in itertools.pairwise([0, *cuts])]
    assert max(sizes) <= 100
    assert max(sizes) - min(sizes) <= 1


def test_what_an_owner_has_not_synced_does_not_land(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", flush="none") as owner:
        owner.put(Message("t", b"1"))
        with lakelog.open(tmp_path / "s", mode="read") as reader:
            assert reader.max_offset > 0
            assert next_spans(reader, 0, TaskLimits()) == []


def test_where_nobody_says_what_is_durable_it_is_synced_first(
    store_fixtures: StoreFixtures, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_path = store_fixtures.get("real_broker_crash").store
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(_name(fd)))
    with lakelog.open(store_path, mode="read") as store:
        assert not store.is_flushed_known
        spans = next_spans(store, store.min_offset, TaskLimits())
        assert spans[-1].end == store.max_offset
    assert "00000000000000000000" in synced
    assert "commitlog" in synced


def test_all_segments_of_a_pass_are_synced_first(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ crashed, and its log has several segments."""
    shutil.rmtree(store_path / "lakelog")
    (store_path / "checkpoint").unlink()
    (store_path / "abort").touch()
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(_name(fd)))
    with lakelog.open(store_path, mode="read") as store:
        assert not store.is_flushed_known
        spans = next_spans(store, 0, TaskLimits(1 << 20, 1 << 10))
    segments = [each.name for each in sorted((store_path / "commitlog").iterdir())]
    assert spans[0].end < SEGMENT < spans[-1].end
    assert set(segments) <= set(synced)


def _name(fd: int) -> str:
    return Path(f"/proc/self/fd/{fd}").readlink().name


def test_a_log_with_another_record_there_is_refused(store_path: Path) -> None:
    with lakelog.open(store_path, mode="read") as store:
        right = _landed(store, store.max_offset)
        assert right.last is not None
        wrong = Fingerprint(right.last.offset, right.last.size, right.last.crc ^ 1)
        with pytest.raises(WrongLog, match="checksum"):
            first_offset(store, Position(0, right.end, wrong), "it")


def test_a_log_that_begins_at_the_position_has_no_gap(store_path: Path) -> None:
    with lakelog.open(store_path, mode="read") as store:
        position = _landed(store, SEGMENT)
    sorted((store_path / "commitlog").iterdir())[0].unlink()
    with lakelog.open(store_path, mode="read") as store:
        assert store.min_offset == position.end
        assert first_offset(store, position, "it") == position.end


def _landed(store: lakelog.Store, end: int) -> Position:
    """A position behind the last record before ``end``, made without the code under test."""
    from zlib import crc32

    last = max(
        (each for each in store.scan() if each.physical_offset + each.size <= end),
        key=lambda m: m.physical_offset,
    )
    segment = last.physical_offset - last.physical_offset % SEGMENT
    file = store.path / "commitlog" / f"{segment:020d}"
    raw = file.read_bytes()[last.physical_offset - segment :][: last.size]
    return Position(0, end, Fingerprint(last.physical_offset, last.size, crc32(raw)))
