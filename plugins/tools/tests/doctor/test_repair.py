"""A damaged log is mended: whole records stay, damaged ones go to quarantine and are replaced."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from pathlib import Path

import pytest

import lakelog
from core.tests.store.support import SEGMENT, fill, open_small, segments, tree
from lakelog import Message, PutResult
from lakelog.errors import BadSegment, LakelogError, NotAStore, StoreLocked
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.format.layout import RECORD_MIN_BYTES
from lakelog.recovery.filler import FILLER_TOPIC, FillerMaker, LogGap
from lakelog.recovery.quarantine import entries
from lakelog_queues.dispatching.tombstones import read_tombstones
from plugins.tools.tests.doctor.repair_support import (
    FILES,
    bodies,
    read,
    repair_small,
    sound,
    write,
)


def test_a_whole_store_stays_as_it_is(path: Path) -> None:
    log = tree(path / "commitlog")
    report = repair_small(path)
    assert (report.plan.steps, report.kept, report.rebuilt) == ((), (), ())
    assert report.done
    assert tree(path / "commitlog") == log


def test_a_damaged_record_is_replaced_and_kept(path: Path, puts: list[PutResult]) -> None:
    bad = puts[50]
    write(path, bad.physical_offset + 200, b"\xff")
    report = repair_small(path)
    assert read(path) == (bodies(puts, without={50}), [])
    assert sound(path)
    (kept,) = report.kept
    assert (kept.offset, kept.end_offset) == (bad.physical_offset, bad.end_offset)
    assert kept.path is not None
    assert kept.path.read_bytes()[200:201] == b"\xff"
    (entry,) = entries(FILES, path)
    assert (entry["offset"], entry["length"]) == (bad.physical_offset, bad.size)
    with lakelog.open(path, mode="read", plugins=[]) as store:
        filler = store.look_up(bad.physical_offset)
        assert (filler.topic, filler.queue_id, filler.queue_offset) == (FILLER_TOPIC, 0, 0)
        assert filler.size == bad.size
        assert filler.store_timestamp_ms == puts[49].store_timestamp_ms
        assert json.loads(filler.body)["offset"] == bad.physical_offset
        assert [bytes(each.body)[:1] for each in store.get(FILLER_TOPIC, 0, 0).messages] == [b"{"]


def test_messages_keep_their_queue_offsets(path: Path, puts: list[PutResult]) -> None:
    write(path, puts[50].physical_offset + 200, b"\xff")
    shutil.rmtree(path / "consumequeue")
    repair_small(path)
    with open_small(path) as store:
        (found,) = store.get("t", 0, 51, max_messages=1).messages
        assert bytes(found.body)[:6] == b"000051"
        assert store.put(Message("t", b"new", queue_id=0)).queue_offset == 100


def test_a_second_repair_changes_nothing(path: Path, puts: list[PutResult]) -> None:
    for number in (3, 50, 51, 98):
        write(path, puts[number].physical_offset + 200, b"\xff")
    assert len(repair_small(path).plan.steps) == 3  # 50 and 51 stand side by side
    before = tree(path / "commitlog")
    queues = tree(path / "consumequeue")
    report = repair_small(path)
    assert (report.plan.steps, report.kept, report.rebuilt) == ((), (), ())
    assert (tree(path / "commitlog"), tree(path / "consumequeue")) == (before, queues)


def test_fillers_before_those_of_an_earlier_repair_have_a_queue_of_their_own(
    path: Path, puts: list[PutResult]
) -> None:
    for number in (60, 20, 80, 10):
        write(path, puts[number].physical_offset + 200, b"\xff")
        repair_small(path)
        assert sound(path)
    with lakelog.open(path, mode="read", plugins=[]) as store:
        places = [store.look_up(puts[number].physical_offset) for number in (60, 20, 80, 10)]
    found = [(each.queue_id, each.queue_offset) for each in places]
    assert found == [(0, 0), (1, 0), (0, 1), (2, 0)]


def last_of(puts: list[PutResult], segment: int) -> int:
    """Number of the last record of a segment."""
    return max(n for n, each in enumerate(puts) if each.physical_offset // SEGMENT == segment)


def test_damage_up_to_the_end_of_a_segment_becomes_blank(path: Path, puts: list[PutResult]) -> None:
    last = last_of(puts, 1)
    write(path, puts[last].physical_offset + 200, b"\xff")
    write(path, puts[last].end_offset, b"\0" * 8)  # its blank, too
    (step,) = repair_small(path).plan.steps
    assert "blank" in step.what
    assert read(path) == (bodies(puts, without={last}), [])
    assert sound(path)


def test_a_segment_of_nothing_but_garbage_becomes_blank(path: Path, puts: list[PutResult]) -> None:
    write(path, SEGMENT, random.Random(1).randbytes(SEGMENT))
    report = repair_small(path)
    lost = {n for n, each in enumerate(puts) if each.physical_offset // SEGMENT == 1}
    assert read(path) == (bodies(puts, without=lost), [])
    assert sound(path)
    assert sum(each.end_offset - each.offset for each in report.kept) == SEGMENT


def test_damage_over_the_border_of_segments_is_mended_in_both(
    path: Path, puts: list[PutResult]
) -> None:
    last = last_of(puts, 0)
    write(path, puts[last].physical_offset, b"\xff" * (SEGMENT - puts[last].physical_offset))
    write(path, SEGMENT, b"\xff" * 300)
    assert len(repair_small(path).plan.steps) == 2
    assert read(path) == (bodies(puts, without={last, last + 1}), [])
    assert sound(path)


def test_a_missing_segment_becomes_one_blank_record(path: Path, puts: list[PutResult]) -> None:
    segments(path)[1].unlink()
    with pytest.raises(BadSegment):
        open_small(path).close()
    report = repair_small(path)
    assert [each.what.split(",")[0] for each in report.plan.steps] == ["make the segment"]
    lost = {n for n, each in enumerate(puts) if each.physical_offset // SEGMENT == 1}
    assert read(path) == (bodies(puts, without=lost), [])
    assert sound(path)
    with open_small(path) as store:
        assert store.put(Message("t", b"new", queue_id=0)).queue_offset == 100


def test_two_missing_segments_become_a_blank_record_each(path: Path, puts: list[PutResult]) -> None:
    for each in segments(path)[1:3]:
        each.unlink()
    assert len(repair_small(path).plan.steps) == 2
    lost = {n for n, each in enumerate(puts) if each.physical_offset // SEGMENT in (1, 2)}
    assert read(path) == (bodies(puts, without=lost), [])
    assert sound(path)


def test_strays_go_to_quarantine(path: Path, puts: list[PutResult]) -> None:
    (path / "commitlog" / "notes.txt").write_bytes(b"mine")
    (path / "commitlog" / "empty").touch()
    report = repair_small(path)
    assert [each.path.name for each in report.plan.steps] == ["empty", "notes.txt"]
    (kept,) = report.kept
    assert kept.path is not None
    assert kept.path.read_bytes() == b"mine"
    assert read(path)[0] == bodies(puts)
    assert sound(path)


def test_a_segment_that_was_cut_short_is_mended(path: Path, puts: list[PutResult]) -> None:
    with segments(path)[1].open("r+b") as file:
        file.truncate(SEGMENT // 2 + 100)
    repair_small(path)
    cut = SEGMENT + SEGMENT // 2 + 100
    lost = {
        n
        for n, each in enumerate(puts)
        if cut < each.end_offset and each.physical_offset < 2 * SEGMENT
    }
    assert read(path) == (bodies(puts, without=lost), [])
    assert sound(path)


def test_a_torn_tail_is_cut_and_not_filled(path: Path, puts: list[PutResult]) -> None:
    write(path, puts[99].physical_offset + 200, b"\xff")
    report = repair_small(path)
    assert report.plan.steps == ()
    assert report.recovery is not None
    assert len(report.recovery.cut) == 1
    assert read(path) == (bodies(puts, without={99}), [])
    assert sound(path)


def test_fillers_are_sealed_where_their_neighbours_are(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_small(path, record_crc=True) as store:
        puts = fill(store, 40)
    write(path, puts[20].physical_offset + 200, b"\xff")
    repair_small(path)
    with lakelog.open(path, mode="read", plugins=[]) as store:
        assert b"__CRC32#" in store.look_up(puts[20].physical_offset).properties_bytes
    assert sound(path)


def test_the_shortest_records_are_replaced_too(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_small(path) as store:
        tiny = [store.put(Message("t", b"", queue_id=0)) for _ in range(10)]
    assert tiny[4].size == RECORD_MIN_BYTES + 1
    write(path, tiny[4].physical_offset, b"\xff\xff")
    assert repair_small(path).left == ()
    assert [offset for offset, _ in read(path)[0]] == [
        each.physical_offset for each in tiny if each is not tiny[4]
    ]
    assert sound(path)


def test_what_no_record_fits_into_is_said_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_small(path, record_crc=True) as store:
        puts = fill(store, 10)
    start = puts[4].physical_offset
    short = next(FillerMaker(("x", 0), 0, 1).make(_gap(start, start + puts[4].size - 100)))[1]
    write(path, start, short)  # the rest of the record after it is too short for a filler
    before = tree(path / "commitlog")
    report = repair_small(path)
    (step,) = report.left
    assert (step.offset, step.is_possible) == (start + len(short), False)
    assert "no record is as short as 100 bytes" in step.what
    assert tree(path / "commitlog") == before
    assert [each.offset for each in read(path)[1]] == [step.offset]


def _gap(offset: int, end_offset: int) -> LogGap:
    return LogGap(offset, end_offset, "", 1, sealed=True)


def test_a_dry_run_tells_the_same_and_changes_nothing(path: Path, puts: list[PutResult]) -> None:
    write(path, puts[50].physical_offset + 200, b"\xff")
    write(path, puts[99].physical_offset + 200, b"\xff")
    before = tree(path)
    planned = repair_small(path, dry_run=True)
    assert tree(path) == before
    assert not planned.done
    done = repair_small(path)
    assert planned.plan.steps == done.plan.steps
    assert len(done.plan.steps) == 1
    assert planned.recovery is not None
    assert done.recovery is not None
    assert [each.offset for each in planned.recovery.cut] == [
        each.offset for each in done.recovery.cut
    ]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_store_that_is_open_is_refused(path: Path, dry_run: bool) -> None:
    with open_small(path), pytest.raises(StoreLocked, match=f"process {os.getpid()}.*stop it"):
        repair_small(path, dry_run=dry_run)


def test_no_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        repair_small(tmp_path / "nothing")


def test_a_wrong_setting_changes_nothing(path: Path) -> None:
    before = tree(path / "commitlog")
    with pytest.raises(BadSegment, match="check this setting"):
        repair_small(path, segment_size_bytes=SEGMENT * 2)
    assert tree(path / "commitlog") == before


def test_no_room_for_the_copy_changes_nothing(path: Path, puts: list[PutResult]) -> None:
    class Full(RealFileSystem):
        def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
            if path.name == "copying":
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().open(path, write=write, create=create)

    write(path, puts[50].physical_offset + 200, b"\xff")
    before = tree(path / "commitlog")
    with pytest.raises(LakelogError, match="No space left"):
        repair_small(path, files=Full())
    assert tree(path / "commitlog") == before
    repair_small(path)
    assert sound(path)


def test_topics_that_were_removed_stay_removed(path: Path, puts: list[PutResult]) -> None:
    with open_small(path) as store:
        store.put(Message("gone", b"x", queue_id=0))
    with open_small(path) as store:
        store.delete_topic("gone")
        store.put(Message("t", b"last", queue_id=0))
    for number in (50, 51):  # one record replaces both: the unit of neither leads there
        write(path, puts[number].physical_offset + 200, b"\xff")
    assert "consumequeue" in repair_small(path).rebuilt
    with lakelog.open(path, mode="read", plugins=[]) as store:
        assert {each.topic for each in store.queues()} == {"t", FILLER_TOPIC}
    assert read_tombstones(FILES, path).keys() == {"gone"}


def test_no_byte_of_the_log_changes_while_the_store_looks_clean(
    path: Path, puts: list[PutResult]
) -> None:
    marked: list[bool] = []

    class Watched(RealFileSystem):
        def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
            if write and path.parent.name == "commitlog":
                marked.append((path.parents[1] / "abort").exists())
            return super().open(path, write=write, create=create)

    write(path, puts[50].physical_offset + 200, b"\xff")
    repair_small(path, files=Watched())
    assert marked
    assert all(marked)
    assert sound(path)
