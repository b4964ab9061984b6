"""A damaged log is mended: whole records stay, damaged ones go to quarantine and are replaced."""

from __future__ import annotations

import errno
import json
import random
import shutil
from collections.abc import Callable, Collection
from itertools import count
from pathlib import Path
from typing import Final

import numpy as np
import pytest

import lakelog
from core.tests.store.support import (
    SEGMENT,
    fill,
    open_small,
    overwrite,
    read_small,
    segments,
    tree,
)
from lakelog import Message, PutResult, Store
from lakelog.errors import BadSegment, LakelogError
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.format.layout import RECORD_MIN_BYTES
from lakelog.format.record_batch import Damage
from lakelog.recovery.filler import FILLER_TOPIC, FillerMaker, LogGap, entries
from lakelog_doctor.check import check
from lakelog_doctor.repair import RepairReport, repair
from lakelog_queues.dispatching.tombstones import read_tombstones
from lakelog_queues.units.simpleunits import UNIT, UNIT_BYTES
from lakelog_testing.samples import copy_store
from plugins.tools.tests.doctor.repair_support import sound

FILES = RealFileSystem()
COUNT = 100
NO_RECORD: Final = (0, 0x7FFFFFFF)
"""Offset and size in a unit that leads nowhere."""


@pytest.fixture
def puts(tmp_path: Path) -> list[PutResult]:
    """The results of the puts into a closed store: 100 messages in 4 segments."""
    with open_small(tmp_path / "store") as store:
        return fill(store, COUNT)


@pytest.fixture
def path(tmp_path: Path, puts: list[PutResult]) -> Path:
    assert puts
    return tmp_path / "store"


def repair_small(path: Path, **more: object) -> RepairReport:
    given: dict[str, object] = {"plugins": [], "segment_size_bytes": SEGMENT, **more}
    return repair(path, **given)  # type: ignore[arg-type]  # settings of several types


def damage(path: Path, puts: list[PutResult], *numbers: int) -> None:
    """Damage records in their bodies."""
    for number in numbers:
        overwrite(path, puts[number].physical_offset + 200, b"\xff")


def read(path: Path) -> tuple[list[tuple[int, bytes]], list[Damage]]:
    """Offset and body of every message except fillers, and the damage."""
    with lakelog.open(path, mode="read", plugins=[], segment_size_bytes=SEGMENT) as store:
        found = [
            (each.physical_offset, bytes(each.body))
            for each in store.scan(on_damage=lambda _: None)
            if each.topic == "t"
        ]
        return found, [each for each in store.scan_pieces() if isinstance(each, Damage)]


def bodies(puts: list[PutResult], *, without: Collection[int] = ()) -> list[tuple[int, bytes]]:
    return [
        (each.physical_offset, b"%06d" % number + b"." * 394)
        for number, each in enumerate(puts)
        if number not in without
    ]


def is_mended(path: Path, puts: list[PutResult], lost: Collection[int]) -> bool:
    return read(path) == (bodies(puts, without=lost), []) and sound(path)


def within(puts: list[PutResult], *numbers: int) -> list[int]:
    """The records of some segments."""
    return [n for n, each in enumerate(puts) if each.physical_offset // SEGMENT in numbers]


def test_a_damaged_record_is_replaced_and_kept(path: Path, puts: list[PutResult]) -> None:
    bad = puts[50]
    damage(path, puts, 50)
    report = repair_small(path)
    assert is_mended(path, puts, {50})
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


def test_a_second_repair_changes_nothing(path: Path, puts: list[PutResult]) -> None:
    damage(path, puts, 3, 50, 51, 98)
    assert len(repair_small(path).plan.steps) == 3  # 50 and 51 stand side by side
    before = tree(path / "commitlog"), tree(path / "consumequeue")
    report = repair_small(path)
    assert (report.plan.steps, report.kept, report.rebuilt) == ((), (), ())
    assert (tree(path / "commitlog"), tree(path / "consumequeue")) == before


def test_fillers_before_those_of_an_earlier_repair_have_a_queue_of_their_own(
    path: Path, puts: list[PutResult]
) -> None:
    for number in (60, 20, 80, 10):
        damage(path, puts, number)
        repair_small(path)
    assert sound(path)
    with lakelog.open(path, mode="read", plugins=[]) as store:
        places = [store.look_up(puts[number].physical_offset) for number in (60, 20, 80, 10)]
    found = [(each.queue_id, each.queue_offset) for each in places]
    assert found == [(0, 0), (1, 0), (0, 1), (2, 0)]


# --- damage of every kind ---

Spoil = Callable[[Path, list[PutResult]], Collection[int]]
"""Damages a log; returns the messages that are lost."""


def the_end_of_a_segment(path: Path, puts: list[PutResult]) -> Collection[int]:
    last = within(puts, 1)[-1]
    damage(path, puts, last)
    overwrite(path, puts[last].end_offset, b"\0" * 8)  # its blank, too
    return {last}


def a_segment_of_garbage(path: Path, puts: list[PutResult]) -> Collection[int]:
    overwrite(path, SEGMENT, random.Random(1).randbytes(SEGMENT))
    return within(puts, 1)


def the_border_of_two_segments(path: Path, puts: list[PutResult]) -> Collection[int]:
    last = within(puts, 0)[-1]
    start = puts[last].physical_offset
    overwrite(path, start, b"\xff" * (SEGMENT - start))
    overwrite(path, SEGMENT, b"\xff" * 300)
    return {last, last + 1}


def a_missing_segment(path: Path, puts: list[PutResult]) -> Collection[int]:
    segments(path)[1].unlink()
    with pytest.raises(BadSegment):
        open_small(path).close()
    return within(puts, 1)


def two_missing_segments(path: Path, puts: list[PutResult]) -> Collection[int]:
    for each in segments(path)[1:3]:
        each.unlink()
    return within(puts, 1, 2)


def a_segment_cut_short(path: Path, puts: list[PutResult]) -> Collection[int]:
    with segments(path)[1].open("r+b") as file:
        file.truncate(SEGMENT // 2)
    return [n for n in within(puts, 1) if puts[n].end_offset > SEGMENT + SEGMENT // 2]


DAMAGES: Final[dict[Spoil, int]] = {
    the_end_of_a_segment: 1,
    a_segment_of_garbage: 1,
    the_border_of_two_segments: 2,
    a_missing_segment: 1,
    two_missing_segments: 2,
    a_segment_cut_short: 1,
}
"""With the number of steps by which each is mended."""


@pytest.mark.parametrize("spoil", DAMAGES, ids=lambda each: each.__name__)
def test_what_is_damaged_is_mended(path: Path, puts: list[PutResult], spoil: Spoil) -> None:
    lost = spoil(path, puts)
    assert len(repair_small(path).plan.steps) == DAMAGES[spoil]
    assert is_mended(path, puts, lost)
    with open_small(path) as store:
        assert store.put(Message("t", b"new", queue_id=0)).queue_offset == COUNT


def test_strays_go_to_quarantine(path: Path, puts: list[PutResult]) -> None:
    (path / "commitlog" / "notes.txt").write_bytes(b"mine")
    (path / "commitlog" / "empty").touch()
    report = repair_small(path)
    assert [each.path.name for each in report.plan.steps] == ["empty", "notes.txt"]
    (kept,) = report.kept
    assert kept.path is not None
    assert kept.path.read_bytes() == b"mine"
    assert is_mended(path, puts, ())


def test_a_torn_tail_is_cut_and_not_filled(path: Path, puts: list[PutResult]) -> None:
    damage(path, puts, 99)
    report = repair_small(path, on_damage="cut-end")
    assert report.plan.steps == ()
    assert report.recovery is not None
    assert len(report.recovery.cut) == 1
    assert is_mended(path, puts, {99})


def test_fillers_are_sealed_where_their_neighbours_are(tmp_path: Path) -> None:
    with open_small(tmp_path, record_crc=True) as store:
        puts = fill(store, 40)
    damage(tmp_path, puts, 20)
    repair_small(tmp_path)
    with lakelog.open(tmp_path, mode="read", plugins=[]) as store:
        assert b"__CRC32#" in store.look_up(puts[20].physical_offset).properties_bytes
    assert sound(tmp_path)


def test_the_shortest_records_are_replaced_too(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        tiny = [store.put(Message("t", b"", queue_id=0)) for _ in range(10)]
    assert tiny[4].size == RECORD_MIN_BYTES + 1
    overwrite(tmp_path, tiny[4].physical_offset, b"\xff\xff")
    assert repair_small(tmp_path).left == ()
    left = [each.physical_offset for each in tiny if each is not tiny[4]]
    assert [offset for offset, _ in read(tmp_path)[0]] == left
    assert sound(tmp_path)


def test_what_no_record_fits_into_is_said_and_stays(tmp_path: Path) -> None:
    with open_small(tmp_path, record_crc=True) as store:
        puts = fill(store, 10)
    start = puts[4].physical_offset
    gap = LogGap(start, puts[4].end_offset - 100, "", 1, sealed=True)
    short = next(FillerMaker(("x", 0), 0, 1).make(gap))[1]
    overwrite(tmp_path, start, short)  # the rest of the record after it is too short for a filler
    before = tree(tmp_path / "commitlog")
    (step,) = repair_small(tmp_path).left
    assert (step.offset, step.is_possible) == (start + len(short), False)
    assert "no record is as short as 100 bytes" in step.what
    assert tree(tmp_path / "commitlog") == before
    assert [each.offset for each in read(tmp_path)[1]] == [step.offset]


def test_a_dry_run_tells_the_same_and_changes_nothing(path: Path, puts: list[PutResult]) -> None:
    damage(path, puts, 50, 99)
    before = tree(path)
    planned = repair_small(path, dry_run=True, on_damage="cut-end")
    assert tree(path) == before
    done = repair_small(path, on_damage="cut-end")
    assert (planned.done, done.done) == (False, True)
    assert planned.plan.steps == done.plan.steps
    assert len(done.plan.steps) == 1
    cuts = [
        [each.offset for each in report.recovery.cut]
        for report in (planned, done)
        if report.recovery is not None
    ]
    assert cuts == [[puts[99].physical_offset]] * 2


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

    damage(path, puts, 50)
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
    damage(path, puts, 50, 51)  # one record replaces both: the unit of neither leads there
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

    damage(path, puts, 50)
    repair_small(path, files=Watched())
    assert marked
    assert all(marked)
    assert sound(path)


# --- the unit of a lost message leads to its replacement, which no read returns ---


def unit(path: Path, number: int) -> tuple[int, int]:
    (file,) = (path / "consumequeue" / "t" / "0").iterdir()
    data = file.read_bytes()[number * UNIT_BYTES : (number + 1) * UNIT_BYTES]
    found = np.frombuffer(data, UNIT)[0]
    return int(found["offset"]), int(found["size"])


def one_by_one(store: Store) -> list[int]:
    """Queue offsets by gets of one message each; checks that each call advances."""
    found, at = [], 0
    for _ in range(COUNT + 10):
        result = store.get("t", 0, at, 1)
        found += [each.queue_offset for each in result.messages]
        assert all(each.topic == "t" for each in result.messages)
        assert result.next_offset >= at
        if result.next_offset == at:
            return found
        at = result.next_offset
    raise AssertionError("it goes on for ever")


@pytest.mark.parametrize("lost", [{0, 1}, {3, 7, 50, 51, 98}], ids=["first", "several"])
def test_units_of_an_earlier_recovery_lead_to_fillers_afterwards(
    path: Path, puts: list[PutResult], lost: set[int]
) -> None:
    damage(path, puts, *lost)
    shutil.rmtree(path / "consumequeue")
    with open_small(path) as store:  # which builds the queue without them
        assert store.queue_bounds("t", 0) is not None
    assert unit(path, max(lost)) == NO_RECORD
    assert not list(check(path, index=False, plugins=[]))
    report = repair_small(path)
    assert report.rebuilt == ("consumequeue",)
    assert report.led == (("t", 0),)
    assert sound(path)
    with read_small(path) as store:
        for number in lost:
            offset, size = unit(path, number)
            assert store.look_up(offset).topic == FILLER_TOPIC
            assert store.look_up(offset).size == size
            assert offset <= puts[number].physical_offset < offset + size
    again = repair_small(path)
    assert (again.rebuilt, again.led) == ((), (("t", 0),))


def test_the_unit_that_the_lost_message_had_stays(path: Path, puts: list[PutResult]) -> None:
    before = tree(path / "consumequeue")
    damage(path, puts, 3)
    report = repair_small(path)
    assert (report.rebuilt, report.led) == ((), (("t", 0),))
    after = tree(path / "consumequeue")
    assert {name: after[name] for name in before} == before
    with open_small(path) as store:
        with pytest.raises(ValueError, match="units of other queues lead to it"):
            store.delete_topic(FILLER_TOPIC)
        assert FILLER_TOPIC in store.topics()


@pytest.mark.parametrize("mode", ["own", "read"])
def test_every_way_of_reading_passes_over_it(path: Path, puts: list[PutResult], mode: str) -> None:
    lost = {0, 1, 50, 51, 98}
    damage(path, puts, *lost)
    with open_small(path) as store:
        fill(store, 1)
    repair_small(path)
    left = [number for number in range(COUNT + 1) if number not in lost]
    with open_small(path) if mode == "own" else read_small(path) as store:
        assert store.queue_units("t", 0, 0, 1000).queue_offsets.tolist() == left
        assert one_by_one(store) == left
        assert [each.queue_offset for each in store.read("t", 0)] == left
        columns = store.get_columns("t", 0, 0, 1000, columns=["queue_offset"])
        assert columns.batch.column("queue_offset").to_pylist() == left
        group = store.consumer("g", "t", start="earliest")
        assert [each.queue_offset for each in group.poll(1000)] == left


def test_a_repair_that_died_behind_the_fillers_serves_none_of_them(
    path: Path, puts: list[PutResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue still has the unit of the lost message; a recovery finds its present record."""
    with open_small(path) as store:
        fill(store, 1)
    damage(path, puts, 3)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lakelog_doctor.repair.keep_damage", die)
        with pytest.raises(KeyboardInterrupt):
            repair_small(path)
    with open_small(path) as store:
        assert store.look_up(puts[3].physical_offset).topic == FILLER_TOPIC
        assert one_by_one(store) == [number for number in range(COUNT + 1) if number != 3]


# --- a repair that is killed at any point: the next one mends the rest, and loses nothing ---


class _Stop(Exception):
    """Stands for the end of the process."""


class _Counted(RealFileSystem):
    """Ends, as if killed, before the n-th change."""

    left: list[int]

    def __init__(self, left: int) -> None:
        object.__setattr__(self, "left", [left])

    def _count(self) -> None:
        self.left[0] -= 1
        if self.left[0] < 0:
            raise _Stop

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if create:
            self._count()
        return super().open(path, write=write, create=create)

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._count()
        super().unlink(path)

    def sync_dir(self, path: Path) -> None:
        self._count()
        super().sync_dir(path)


def _is_done(path: Path, changes: int) -> bool:
    """Repair, and end after ``changes`` changes; return whether the repair was complete before."""
    try:
        repair_small(path, files=_Counted(changes), on_damage="cut-end")
    except (_Stop, LakelogError):
        return False
    return True


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_wherever_it_is_stopped_the_next_repair_goes_on(
    path: Path, puts: list[PutResult], tmp_path: Path, step: int
) -> None:
    (path / "commitlog" / "notes.txt").write_bytes(b"mine")
    segments(path)[1].unlink()
    damage(path, puts, 10, 99)
    expected = bodies(puts, without={*within(puts, 1), 10, 99})
    places = {0, puts[10].physical_offset, puts[99].physical_offset}
    for number in count(0, step):
        copy = copy_store(path, tmp_path / str(number))
        done = _is_done(copy, number)
        assert read(copy)[0] == expected
        repair_small(copy, on_damage="cut-end")
        assert (read(copy), sound(copy)) == ((expected, []), True)
        assert {each["offset"] for each in entries(FILES, copy)} == places
        shutil.rmtree(copy)
        if done:
            break
    assert number > 20
