"""A log that lost its end, and zeros where records were: a hole is damage, or the end."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from core.tests.recovery.support import (
    crash,
    log_bytes,
    offsets,
    open_and_close,
    recover_small,
    starts,
    zero,
)
from core.tests.store.support import SEGMENT, a_store, open_small, read_small, refused, segments
from lakelog import Message, PutResult, Store
from lakelog.errors import BadSegment, StoreError
from lakelog.files.checkpoint import StoreCheckpoint, write_checkpoint
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.record_batch import Damage

LOSSES = pytest.mark.parametrize(
    "lose",
    [
        Path.unlink,
        lambda last: last.write_bytes(bytes(last.stat().st_size)),
        lambda last: os.truncate(last, 0),
    ],
    ids=["removed", "zeroed", "emptied"],
)


@LOSSES
@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_end_is_said_and_noted(
    tmp_path: Path, lose: Callable[[Path], object], clean: bool
) -> None:
    end = a_store(tmp_path)[-1].end_offset
    lose(segments(tmp_path)[-1])
    if not clean:
        crash(tmp_path)
    report = recover_small(tmp_path)
    assert {each.end_offset for each in report.missing} == {end}
    assert {each.offset for each in report.missing} == {report.end_offset}
    assert len(report.missing) == (3 if clean else 1)
    assert recover_small(tmp_path).missing == ()
    noted = json.loads((tmp_path / "lakelog" / "missing.json").read_text())
    assert noted["missing"][0]["end_offset"] == end
    assert noted["next_offsets"] == {"t": {"0": 100}}


@LOSSES
def test_refuse_refuses_before_anything_is_changed(
    tmp_path: Path, lose: Callable[[Path], object]
) -> None:
    a_store(tmp_path)
    lose(segments(tmp_path)[-1])
    for way in (partial(recover_small, dry_run=True), open_small):
        with refused(tmp_path, BadSegment, "on_damage", "once"):
            way(tmp_path, on_damage="refuse")


def test_an_owner_that_died_vouches_for_what_it_synced(tmp_path: Path) -> None:
    """Its checkpoint is beyond the last mark; ``abort`` and its page name the same process."""
    a_store(tmp_path, 20)
    kept = (tmp_path / "lakelog" / "queues.json").read_bytes()
    results = a_store(tmp_path)
    (tmp_path / "lakelog" / "queues.json").write_bytes(kept)
    (tmp_path / "abort").write_text(str(os.getpid()))
    segments(tmp_path)[-1].unlink()
    (missing,) = recover_small(tmp_path, dry_run=True).missing
    assert missing.end_offset == results[-1].end_offset
    (tmp_path / "abort").write_text("1")  # another program ran since
    assert recover_small(tmp_path, dry_run=True).missing == ()


def test_units_that_a_power_cut_left_are_no_loss(tmp_path: Path) -> None:
    a_store(tmp_path, 20)
    checkpoint = (tmp_path / "checkpoint").read_bytes()
    kept = (tmp_path / "lakelog" / "queues.json").read_bytes()
    a_store(tmp_path)
    (tmp_path / "checkpoint").write_bytes(checkpoint)
    (tmp_path / "lakelog" / "queues.json").write_bytes(kept)
    crash(tmp_path)
    segments(tmp_path)[-1].unlink()
    assert recover_small(tmp_path, on_damage="refuse").missing == ()


def test_a_whole_log_that_is_gone_is_refused(tmp_path: Path) -> None:
    a_store(tmp_path)
    for each in segments(tmp_path):
        each.unlink()
    with refused(tmp_path, StoreError, "check that the disk is mounted", "To begin a new log"):
        open_small(tmp_path)
    with refused(tmp_path, StoreError, "check that the disk is mounted"):
        recover_small(tmp_path)
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "lakelog" / "queues.json").unlink()
    with refused(tmp_path, StoreError, "there are queues"):
        open_small(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    assert recover_small(tmp_path, dry_run=True).end_offset == 0
    open_and_close(tmp_path)


def test_a_log_elsewhere_that_is_not_mounted_is_refused(tmp_path: Path) -> None:
    path, log = tmp_path / "store", tmp_path / "log"
    a_store(path, 20, commitlog_path=log)
    for each in log.iterdir():
        each.unlink()
    with refused(path, StoreError, str(log), "check that the disk is mounted"):
        open_small(path, commitlog_path=log)


def test_an_empty_store_opens_again(tmp_path: Path) -> None:
    open_and_close(tmp_path)
    assert recover_small(tmp_path, dry_run=True).end_offset == 0
    open_and_close(tmp_path)


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
