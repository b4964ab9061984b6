"""``on_damage``, wrong lengths of files, and what no recovery goes over."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from core.tests.recovery.support import (
    a_crashed_store,
    crash,
    flip,
    kept_lines,
    log_bytes,
    offsets,
    quarantine,
    recover_small,
    starts,
)
from core.tests.store.support import (
    SEGMENT,
    a_store,
    fill,
    open_small,
    overwrite,
    refused,
    segments,
    tree,
)
from lakelog.errors import BadSegment, LakelogError, NotAStore, StoreLocked


@pytest.mark.both_ways
def test_skip_keeps_what_is_whole_and_notes_the_damage(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    bad = results[50]
    flip(tmp_path, bad)
    before = log_bytes(tmp_path)
    report = recover_small(tmp_path)
    assert log_bytes(tmp_path) == before
    assert [str(each.path) for each in report.damage] == [str(segments(tmp_path)[1])]
    (noted,) = json.loads((tmp_path / "lakelog" / "damage.json").read_text())["damage"]
    assert (noted["offset"], noted["end_offset"]) == (bad.physical_offset, bad.end_offset)
    assert "body is damaged" in noted["what"]
    met: list[object] = []
    with open_small(tmp_path) as store:
        found = [each.physical_offset for each in store.scan(on_damage=met.append)]
    assert found == starts(results[:50] + results[51:])
    assert len(met) == 1


def test_damage_that_went_is_forgotten(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    flip(tmp_path, results[50])
    recover_small(tmp_path)
    flip(tmp_path, results[50])
    crash(tmp_path)
    (tmp_path / "checkpoint").unlink()
    assert recover_small(tmp_path).damage == ()
    assert json.loads((tmp_path / "lakelog" / "damage.json").read_text()) == {"damage": []}


def test_refuse_changes_nothing(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    flip(tmp_path, results[50])
    for way in (open_small, partial(recover_small, dry_run=True)):
        with refused(tmp_path, BadSegment, "on_damage", str(segments(tmp_path)[1])) as caught:
            way(tmp_path, on_damage="refuse")
        assert isinstance(caught.value, BadSegment)
        assert caught.value.offset == results[50].physical_offset


def test_refuse_minds_no_torn_tail(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    flip(tmp_path, results[-1])
    (tmp_path / "checkpoint").unlink()  # which says that it was durable
    assert recover_small(tmp_path, on_damage="refuse").end_offset == results[-2].end_offset


@pytest.mark.both_ways
def test_truncate_cuts_at_the_damage(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    flip(tmp_path, results[50])
    behind = log_bytes(tmp_path)[results[50].physical_offset :].rstrip(b"\x00")
    report = recover_small(tmp_path, on_damage="truncate")
    assert report.end_offset == results[49].end_offset
    assert (report.damage, report.missing) == ((), ())
    assert report.cut_at is not None
    assert report.cut_at.offset == results[50].physical_offset
    reason = f"cut by on_damage='truncate' at damage {results[50].physical_offset}; "
    assert all(each.reason.startswith(reason) for each in report.cut)
    counts = [int(each.reason.removeprefix(reason).split()[0]) for each in report.cut]
    assert sum(counts) == len(results) - 51
    assert [Path(line["segment"]).name for line in kept_lines(tmp_path)] == [
        "00000000000000016384",
        "00000000000000032768",
        "00000000000000049152",
    ]
    kept = quarantine(tmp_path)
    parts = [kept[name] for name in sorted(kept)]
    rolled = parts[0].ljust(2 * SEGMENT - results[49].end_offset, b"\x00")
    assert rolled + parts[1].ljust(SEGMENT, b"\x00") + parts[2] == behind
    assert [each.name for each in segments(tmp_path)] == [f"{at:020d}" for at in (0, SEGMENT)]
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(results[:50])
        assert fill(store, 1)[0].queue_offset == 50


@pytest.mark.both_ways
@pytest.mark.parametrize("length", [0, 100, 9_000])
def test_a_last_segment_that_is_short(length: int, tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    last = segments(tmp_path)[-1]
    os.truncate(last, length)
    whole = [each for each in results if each.end_offset <= int(last.name) + length]
    with open_small(tmp_path) as store:
        assert store.recovery is not None
        assert len(store.recovery.mended) == 1
        assert last.name in store.recovery.mended[0]
        assert offsets(store) == starts(whole)
        assert fill(store, 1)[0].queue_offset == len(whole)
    assert last.stat().st_size == SEGMENT


@pytest.mark.both_ways
def test_a_segment_in_the_middle_that_is_short(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    short = segments(tmp_path)[1]
    os.truncate(short, 5_000)
    whole = [
        each
        for each in results
        if each.end_offset <= SEGMENT + 5_000 or each.physical_offset >= 2 * SEGMENT
    ]
    report = recover_small(tmp_path)
    assert [each.end_offset for each in report.damage] == [2 * SEGMENT]
    assert short.stat().st_size == SEGMENT
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(whole)


def test_a_segment_that_is_too_long(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    longer = segments(tmp_path)[1]
    longer.write_bytes(longer.read_bytes() + b"surplus")
    report = recover_small(tmp_path)
    assert longer.stat().st_size == SEGMENT
    assert list(quarantine(tmp_path).values()) == [b"surplus"]
    assert len(report.mended) == 1
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(results)


def test_an_only_segment_of_another_size_is_no_short_one(tmp_path: Path) -> None:
    """Nothing shows which of the two is right, and to extend it could ruin the store."""
    with open_small(tmp_path) as store:
        fill(store, 5)
    crash(tmp_path)
    for size in (2 * SEGMENT, SEGMENT // 2):
        with refused(tmp_path, BadSegment, "correct the setting"):
            open_small(tmp_path, segment_size_bytes=size)
    os.truncate(segments(tmp_path)[0], 5_001)
    assert recover_small(tmp_path).mended


def test_a_missing_segment(tmp_path: Path) -> None:
    a_crashed_store(tmp_path)
    segments(tmp_path)[1].unlink()
    for dry_run in (True, False):
        with refused(tmp_path, BadSegment, "lakelog repair"):
            recover_small(tmp_path, dry_run=dry_run)


def test_no_store(tmp_path: Path) -> None:
    with refused(tmp_path / "none", NotAStore):
        recover_small(tmp_path / "none")
    (tmp_path / "letter.txt").write_text("Dear")
    with refused(tmp_path, NotAStore):
        recover_small(tmp_path)


def test_a_store_that_somebody_owns(tmp_path: Path) -> None:
    with open_small(tmp_path):
        for dry_run in (True, False):
            with pytest.raises(StoreLocked, match="has this store open; stop it first"):
                recover_small(tmp_path, dry_run=dry_run)


def test_a_setting_that_is_unknown(tmp_path: Path) -> None:
    a_crashed_store(tmp_path)
    with refused(tmp_path, LakelogError, "on_damage"):
        recover_small(tmp_path, on_damage="guess")


@pytest.mark.both_ways
def test_a_dry_run_changes_nothing_and_tells_the_same(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    flip(tmp_path, results[20])
    overwrite(tmp_path, results[-1].physical_offset + 60, bytes(200))
    os.truncate(segments(tmp_path)[1], 9_000)
    before = tree(tmp_path)
    told: list[tuple[int, int]] = []
    dry = recover_small(tmp_path, dry_run=True, progress=lambda *each: told.append(each))
    assert tree(tmp_path) == before
    assert told[-1][0] == told[-1][1] == SEGMENT * len(segments(tmp_path))
    assert told == sorted(told)
    wet = recover_small(tmp_path)
    assert [str(each) for each in dry.damage] == [str(each) for each in wet.damage]
    assert [(each.offset, each.end_offset) for each in dry.cut] == [
        (each.offset, each.end_offset) for each in wet.cut
    ]
    assert (dry.end_offset, dry.records, dry.mended) == (wet.end_offset, wet.records, wet.mended)
    assert len(dry.damage) == 2
    assert dry.cut[0].path is None


class Phases:
    """A progress callback that wants to know what it is told of."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[tuple[int, int]]]] = []

    def __call__(self, done: int, total: int) -> None:
        self.told[-1][1].append((done, total))

    def phase(self, words: str) -> None:
        self.told.append((words, []))


def test_progress_is_told_of_the_log_and_then_of_the_queues(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    (tmp_path / "lakelog" / "queues.json").unlink()
    dry, phases, plain = Phases(), Phases(), list[tuple[int, int]]()
    recover_small(tmp_path, dry_run=True, progress=dry)
    assert [words for words, _ in dry.told] == ["reading the log"]
    recover_small(tmp_path, progress=phases)
    (reading, read), (completing, completed) = phases.told
    assert (reading, completing) == ("reading the log", "completing queues and index")
    size = SEGMENT * len(segments(tmp_path))
    assert read[-1] == (size, size)
    assert completed[-1] == (results[-1].end_offset, results[-1].end_offset)
    crash(tmp_path)
    (tmp_path / "lakelog" / "queues.json").unlink()
    recover_small(tmp_path, progress=lambda *each: plain.append(each))
    assert plain == read + completed


@pytest.mark.parametrize("gone", ["consumequeue", "consumequeue/t/0", "lakelog/queues.json"])
def test_it_is_read_whole_where_queues_do_not_say_enough(gone: str, tmp_path: Path) -> None:
    results = a_store(tmp_path)
    target = tmp_path / gone
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    with open_small(tmp_path) as store:
        assert store.recovery is not None
        assert store.recovery.start_offset == 0
        assert fill(store, 1)[0].queue_offset == len(results)
