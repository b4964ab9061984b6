"""Zeros where records were: a hole among whole records is damage, zeros behind them are the end.

A sparse file that a crash left without its pages reads as zeros, and so does what somebody punched
out. Nothing tells them from room that was never used, but for what stands behind them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core.tests.recovery.support import crash, log_bytes, offsets, recover_small, starts, zero
from core.tests.store.support import SEGMENT, a_store, open_small, read_small, segments
from lakelog import Message, PutResult, Store
from lakelog.files.filesystem import RealFileSystem
from lakelog.log.reading.pieces import Damage
from lakelog_interfaces.checkpoint import StoreCheckpoint, write_checkpoint

COUNT = 130
LATE_MS = 9_000_000_000_000
STOPS = pytest.mark.parametrize("clean", [True, False])


def left(path: Path, *, clean: bool) -> list[PutResult]:
    """A store of at least four segments, the last partly filled."""
    results = a_store(path, COUNT)
    assert len({each.physical_offset // SEGMENT for each in results}) >= 4
    if not clean:
        write_checkpoint(RealFileSystem(), path, StoreCheckpoint(LATE_MS, LATE_MS, LATE_MS))
        crash(path)
    return results


def scanned(store: Store) -> tuple[list[int], list[tuple[int, int]]]:
    """The messages of a scan, and the damage that it told."""
    met: list[Damage] = []
    found = [each.physical_offset for each in store.scan(on_damage=met.append)]
    return found, [(each.offset, each.end_offset or 0) for each in met]


def end_of_log(path: Path) -> int:
    return len(segments(path)) * SEGMENT


def in_segment(results: list[PutResult], number: int) -> list[int]:
    return [at for at, each in enumerate(results) if each.physical_offset // SEGMENT == number]


@STOPS
@pytest.mark.parametrize("segment", [1, 2])
def test_zeros_from_somewhere_to_the_end_end_the_log(
    tmp_path: Path, segment: int, clean: bool
) -> None:
    """Not behind them: what is put next follows the last whole record."""
    results = left(tmp_path, clean=clean)
    last = in_segment(results, segment)[5]
    zero(tmp_path, results[last].end_offset, end_of_log(tmp_path))
    report = recover_small(tmp_path)
    assert report.end_offset == results[last].end_offset
    assert report.damage == ()
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(results[: last + 1])
        assert store.queue_bounds("t", 0) == (0, last + 1)
        new = store.put(Message("t", b"new", queue_id=0))
        assert new.physical_offset == results[last].end_offset
        assert new.queue_offset == last + 1


@STOPS
def test_zeros_from_the_start_of_the_last_segment(tmp_path: Path, clean: bool) -> None:
    results = left(tmp_path, clean=clean)
    segment = results[-1].physical_offset // SEGMENT
    first = in_segment(results, segment)[0]
    zero(tmp_path, segment * SEGMENT, end_of_log(tmp_path))
    report = recover_small(tmp_path)
    assert report.end_offset == segment * SEGMENT  # a blank fills the one before
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(results[:first])


@pytest.mark.both_ways
@STOPS
@pytest.mark.parametrize("where", ["front", "middle", "over the edge"])
def test_a_hole_in_front_of_whole_records_is_damage(
    tmp_path: Path, where: str, clean: bool
) -> None:
    results = left(tmp_path, clean=clean)
    before = log_bytes(tmp_path)
    last = in_segment(results, results[-1].physical_offset // SEGMENT)
    lost = {
        "front": last[:3],
        "middle": last[2:5],
        "over the edge": [last[0] - 2, last[0] - 1, *last[:3]],
    }[where]
    begin, end = results[lost[0]].physical_offset, results[lost[-1]].end_offset
    zero(tmp_path, begin, end)
    report = recover_small(tmp_path)
    assert [(each.offset, each.end_offset) for each in report.damage] == [(begin, end)]
    assert report.end_offset == results[-1].end_offset
    assert log_bytes(tmp_path)[end:] == before[end:]
    whole = [each for at, each in enumerate(results) if at not in lost]
    for opened in (open_small, read_small):
        with opened(tmp_path) as store:
            assert scanned(store) == (starts(whole), [(begin, end)])
            got = store.get("t", 0, 0, COUNT).messages
            assert [each.physical_offset for each in got] == starts(whole)
    with open_small(tmp_path) as store:
        assert store.put(Message("t", b"", queue_id=0)).queue_offset == COUNT


@STOPS
def test_a_hole_that_nobody_looked_at_is_reported_by_reads(tmp_path: Path, clean: bool) -> None:
    """Reading began behind it, as behind any damage in what is known to be durable."""
    results = left(tmp_path, clean=clean)
    lost = in_segment(results, 1)[-3:]
    begin, end = results[lost[0]].physical_offset, 2 * SEGMENT
    zero(tmp_path, begin, end)
    recover_small(tmp_path)
    with open_small(tmp_path) as store:
        others = [each for each in starts(results) if not begin <= each < end]
        assert scanned(store) == (others, [(begin, end)])
