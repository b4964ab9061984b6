"""``on_damage``, wrong lengths of files, where reading begins, and what stays noted of the rest."""

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
from lakelog import Message, PutResult, Store
from lakelog.errors import BadSegment, NotAStore, StoreError, StoreLocked
from lakelog.files.checkpoint import StoreCheckpoint, read_checkpoint, write_checkpoint
from lakelog.files.filesystem import RealFileSystem


@pytest.mark.both_ways
def test_skip_keeps_what_is_whole_and_notes_the_damage(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    bad = results[50]
    flip(tmp_path, bad)
    before = log_bytes(tmp_path)
    report = recover_small(tmp_path)
    assert (log_bytes(tmp_path), quarantine(tmp_path)) == (before, {})
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
    with open_small(tmp_path, on_damage="cut-end") as store:
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


@pytest.mark.both_ways
def test_a_dry_run_changes_nothing_and_tells_the_same(tmp_path: Path) -> None:
    results = a_crashed_store(tmp_path)
    flip(tmp_path, results[20])
    overwrite(tmp_path, results[-1].physical_offset + 60, bytes(200))
    os.truncate(segments(tmp_path)[1], 9_000)
    before = tree(tmp_path)
    told: list[tuple[int, int]] = []
    given = {"on_damage": "cut-end", "progress": lambda *each: told.append(each)}
    dry = recover_small(tmp_path, dry_run=True, **given)
    assert tree(tmp_path) == before
    assert told[-1][0] == told[-1][1] == SEGMENT * len(segments(tmp_path))
    assert told == sorted(told)
    wet = recover_small(tmp_path, on_damage="cut-end")
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


FILES = RealFileSystem()


def noted(path: Path) -> list[PutResult]:
    """A store whose recovery noted damage, and was followed by a clean stop."""
    results = a_crashed_store(path)
    flip(path, results[10])
    read_from_the_start = read_checkpoint(FILES, path)._replace(logics_timestamp_ms=0)
    write_checkpoint(FILES, path, read_from_the_start)
    assert recover_small(path).damage
    return results


@pytest.mark.both_ways
def test_noted_damage_is_told_again(tmp_path: Path) -> None:
    results = noted(tmp_path)
    report = recover_small(tmp_path)
    assert report.read_from > results[10].end_offset
    assert not report.read_all
    (damage,) = report.damage
    assert (damage.offset, damage.path) == (results[10].physical_offset, segments(tmp_path)[0])
    assert "noted earlier" in str(damage)
    (damage,) = recover_small(tmp_path, full=True).damage
    assert "noted earlier" not in str(damage)
    (damage,) = recover_small(tmp_path).damage
    assert str(damage).count("noted earlier") == 1


@pytest.mark.both_ways
def test_refuse_heeds_it(tmp_path: Path) -> None:
    results = noted(tmp_path)
    with refused(tmp_path, BadSegment, str(results[10].physical_offset), "noted earlier"):
        open_small(tmp_path, on_damage="refuse")


@pytest.mark.both_ways
def test_truncate_cuts_there(tmp_path: Path) -> None:
    results = noted(tmp_path)
    assert recover_small(tmp_path, on_damage="truncate").end_offset == results[9].end_offset
    report = recover_small(tmp_path)
    assert (report.damage, report.missing) == ((), ())
    with open_small(tmp_path) as store:
        assert offsets(store) == starts(results[:10])


@pytest.mark.both_ways
def test_full_reads_all_and_finds_what_else_nobody_would(tmp_path: Path) -> None:
    results = a_store(tmp_path)
    flip(tmp_path, results[10])
    report = recover_small(tmp_path)
    assert (report.damage, report.read_all, report.read_from > SEGMENT) == ((), False, True)
    for dry_run in (True, False):
        report = recover_small(tmp_path, full=True, dry_run=dry_run)
        assert (len(report.damage), report.read_all) == (1, True)


@pytest.mark.both_ways
def test_a_dry_run_states_no_place_that_it_did_not_look_for(tmp_path: Path) -> None:
    a_crashed_store(tmp_path)
    assert recover_small(tmp_path, dry_run=True).dispatched_from is None
    assert recover_small(tmp_path).dispatched_from is not None


@pytest.mark.both_ways
@pytest.mark.parametrize("name", ["abort", "abort.bak"])
def test_a_dry_run_says_what_is_in_the_way(tmp_path: Path, name: str) -> None:
    a_store(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    with refused(tmp_path, StoreError, name, "a file belongs there"):
        recover_small(tmp_path, dry_run=True)


# --- from where a log is read ---


LATE_MS = 9_000_000_000_000
UNIT_BYTES = 20
STOPS = pytest.mark.parametrize("clean", [True, False])


def left(path: Path, *, clean: bool) -> None:
    """Queue 1 has five messages, units of two were synced, and of the others none are there.

    Queue 0 reaches to the end, some segments further on, and the checkpoint claims all of it.
    """
    with open_small(path) as store:
        fill(store, 10)
        put(store, 2)
    kept = (path / "lakelog" / "queues.json").read_bytes()
    with open_small(path) as store:
        put(store, 3)
        fill(store, 130)
    (path / "lakelog" / "queues.json").write_bytes(kept)
    with (path / "consumequeue" / "t" / "1" / f"{0:020d}").open("r+b") as file:
        file.seek(2 * UNIT_BYTES)
        file.write(bytes(3 * UNIT_BYTES))
    if not clean:
        write_checkpoint(RealFileSystem(), path, StoreCheckpoint(LATE_MS, LATE_MS, LATE_MS))
        crash(path)


def put(store: Store, count: int) -> list[int]:
    return [store.put(Message("t", b".", queue_id=1)).queue_offset for _ in range(count)]


@pytest.mark.both_ways
@STOPS
def test_no_queue_offset_is_given_twice(tmp_path: Path, clean: bool) -> None:
    left(tmp_path, clean=clean)
    with open_small(tmp_path) as store:
        assert put(store, 1) == [5]
        assert store.wait_dispatched()
        found = [each.queue_offset for each in store.get("t", 1, 0).messages]
    assert found == [0, 1, 2, 3, 4, 5]


@pytest.mark.both_ways
@STOPS
def test_reading_begins_where_queues_were_last_synced(tmp_path: Path, clean: bool) -> None:
    left(tmp_path, clean=clean)
    assert recover_small(tmp_path, dry_run=True).start_offset == 0
    assert recover_small(tmp_path).clean is clean
    assert recover_small(tmp_path).start_offset > 2 * SEGMENT  # and that was synced again


@pytest.mark.both_ways
@STOPS
def test_a_list_of_another_log_proves_nothing(tmp_path: Path, clean: bool) -> None:
    """Its marks are of no record of this one, so that all of it is read."""
    with open_small(tmp_path / "other") as store:
        fill(store, 3, 300)
    with open_small(tmp_path / "store") as store:
        fill(store, 130)
    kept = (tmp_path / "other" / "lakelog" / "queues.json").read_bytes()
    (tmp_path / "store" / "lakelog" / "queues.json").write_bytes(kept)
    if not clean:
        crash(tmp_path / "store")
    report = recover_small(tmp_path / "store")
    assert report.start_offset == report.dispatched_from == 0
    assert report.start_reason == "the log is not the one whose queues were synced"


@pytest.mark.both_ways
@pytest.mark.parametrize("early", ["physic_timestamp_ms", "logics_timestamp_ms"])
def test_the_earlier_time_of_a_foreign_checkpoint_counts(tmp_path: Path, early: str) -> None:
    """RocketMQ syncs log and queues apart, and has no list of queues."""
    a_store(tmp_path, 130)
    (tmp_path / "lakelog" / "queues.json").unlink()
    times = {"physic_timestamp_ms": LATE_MS, "logics_timestamp_ms": LATE_MS, early: 1}
    write_checkpoint(FILES, tmp_path, StoreCheckpoint(**times))
    crash(tmp_path)
    assert recover_small(tmp_path, dry_run=True).start_offset == 0
    write_checkpoint(FILES, tmp_path, StoreCheckpoint(LATE_MS, LATE_MS))
    assert recover_small(tmp_path, dry_run=True).start_offset > 2 * SEGMENT
