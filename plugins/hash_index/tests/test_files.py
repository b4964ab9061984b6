"""The index on the disk: files, damage, crashes, full disks, times, removals and sizes."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Event, get_ident
from typing import Any

import attrs
import pytest

from core.tests.store.faults import NthFails, SeenFiles
from lakelog.errors import CorruptIndex
from lakelog.files.checkpoint import CheckpointKeeper
from lakelog.files.filesystem import File, RealFile, RealFileSystem
from lakelog.message import Body
from lakelog_hash_index import verify
from lakelog_hash_index.filewriter import next_name
from lakelog_hash_index.indexfile import IndexFile
from lakelog_hash_index.plugin import HashIndexSettings
from lakelog_hash_index.shape import ENTRY, HEADER, SLOT
from plugins.hash_index.tests.support import (
    FOREVER,
    NOW_MS,
    RECS,
    SMALL,
    Rec,
    batch_of,
    built,
    find,
    index_paths,
    index_timestamp,
    owner,
    poke,
    reader,
    resumed,
    snapshot,
    vouch,
    write_log,
)
from tests.support.waiting import until

pytestmark = pytest.mark.both_ways

ONE_SLOT = HashIndexSettings(slots=1, entries=6)


def answers(index: Any) -> list[list[int]]:
    return [find(index, key) for key in ("all", *(f"k{at}" for at in range(8)))]


def expected(offsets: list[int]) -> list[list[int]]:
    return [offsets[::-1], *([each] for each in offsets)]


def test_entries_of_a_new_file_take_no_space_yet(tmp_path: Path) -> None:
    index = owner(tmp_path, HashIndexSettings())
    index.resume(0, 0)
    index.dispatch(batch_of(RECS))
    index.close()
    (path,) = index_paths(tmp_path)
    assert path.stat().st_size == 420_000_040
    assert path.stat().st_blocks * 512 < 24 << 20


class HeldListing(RealFileSystem):
    """The first listing of a folder by another thread ends when it may."""

    def __init__(self) -> None:
        self.may_end, self.begun, self.maker = Event(), Event(), get_ident()

    def list(self, directory: Path) -> list[tuple[str, int]]:
        found = super().list(directory)
        if get_ident() != self.maker and not self.begun.is_set():
            self.begun.set()
            assert self.may_end.wait(20)
        return found


def test_a_query_while_the_first_keys_are_dispatched_hides_none(tmp_path: Path) -> None:
    files, batch = HeldListing(), batch_of(RECS)
    index = owner(tmp_path, files=files)
    assert index.resume(0, 0) == 0
    with ThreadPoolExecutor(1) as pool:
        query = pool.submit(find, index, "all")
        until(lambda: query.done() or files.begun.is_set())
        index.dispatch(batch[:1])
        files.may_end.set()
        assert query.result(20) == []
    index.dispatch(batch[1:])
    assert answers(index) == expected(batch.physical_offsets.tolist())
    index.close()
    assert verify(tmp_path / "index", SMALL.slots, SMALL.entries) == []


def test_there_is_no_file_before_the_first_key(tmp_path: Path) -> None:
    index = owner(tmp_path)
    assert index.resume(0, 0) == 0
    index.close()
    assert not (tmp_path / "index").exists()
    batch = batch_of([*[Rec()] * 9, *RECS])
    index = owner(tmp_path)
    index.resume(0, 0)
    index.dispatch(batch[:9])
    index.flush()
    assert find(index, "all") == []
    assert not (tmp_path / "index").exists()
    index.dispatch(batch[9:])
    assert answers(index) == expected(batch.physical_offsets.tolist()[9:])
    index.close()


def test_a_full_file_is_followed_by_another_with_the_next_key(tmp_path: Path) -> None:
    batch = batch_of([Rec.keyed("a b c d e"), Rec(), Rec.keyed("f")])
    index = owner(tmp_path)
    index.resume(0, 0)
    index.dispatch(batch[:1])
    index.dispatch(batch[1:2])
    assert len(index_paths(tmp_path)) == 1
    index.dispatch(batch[2:])
    assert len(index_paths(tmp_path)) == 2
    index.close()


@pytest.mark.parametrize(
    ("last", "name"),
    [
        (None, "20261025023000005"),
        ("20261025023000004", "20261025023000005"),
        ("20261025023000005", "20261025023000006"),
        ("20261025025959999", "20261025030000000"),
        ("20261399999999999", "20261400000000000"),
    ],
)
def test_names_rise_even_where_the_clock_does_not(last: str | None, name: str) -> None:
    assert next_name(datetime(2026, 10, 25, 2, 30, 0, 5000), last) == name  # noqa: DTZ001  # names are local times


def test_times_are_compared_without_losing_what_was_rounded(tmp_path: Path) -> None:
    times = [NOW_MS, NOW_MS + 1999, NOW_MS + 4000]
    batch = batch_of([Rec.keyed("k", time_ms=each) for each in times])
    first, middle, last = batch.physical_offsets.tolist()
    index = resumed(owner(tmp_path), batch)
    assert find(index, "k", window=(NOW_MS + 1999, NOW_MS + 1999)) == [middle]
    assert find(index, "k", window=(NOW_MS, NOW_MS)) == [first]
    assert find(index, "k", window=(NOW_MS + 2000, NOW_MS + 4000)) == [last]
    assert find(index, "k", window=(0, NOW_MS - 1)) == []
    assert find(index, "k", window=(NOW_MS + 5000, NOW_MS + 9000)) == []
    index.close()


def test_a_file_that_began_while_the_clock_was_ahead_hides_nothing(tmp_path: Path) -> None:
    times = [NOW_MS + 3_600_000, NOW_MS, NOW_MS + 5_000]
    batch = batch_of([Rec.keyed(f"k{at}", time_ms=each) for at, each in enumerate(times)])
    index = resumed(owner(tmp_path), batch)
    for at, place in enumerate(batch.physical_offsets.tolist()):
        assert find(index, f"k{at}", window=(times[at], times[at])) == [place]
    index.close()


def test_the_first_entry_of_a_file_has_the_time_of_the_header(tmp_path: Path) -> None:
    """An hour without a message lies between the files."""
    recs = [Rec.keyed("a b c d e"), Rec.keyed("late", time_ms=NOW_MS + 3_600_000)]
    batch = batch_of(recs)
    index = resumed(owner(tmp_path), batch)
    window = (NOW_MS + 3_600_000, NOW_MS + 3_600_000)
    assert find(index, "late", window=window) == [int(batch.physical_offsets[1])]
    index.close()


def test_a_record_of_many_files_that_was_cut_is_completed(tmp_path: Path) -> None:
    """As after a full disk: existing keys are not added again, missing ones are."""
    batch = batch_of([Rec.keyed(" ".join(f"k{at % 6}" for at in range(17)))])
    resumed(owner(tmp_path / "whole"), batch).close()
    resumed(owner(tmp_path / "cut"), batch).close()
    for path in index_paths(tmp_path / "cut")[2:]:
        path.unlink()
    resumed(owner(tmp_path / "cut"), batch).close()
    whole, cut = (
        [each.read_bytes() for each in index_paths(tmp_path / name)] for name in ("whole", "cut")
    )
    assert cut == whole


@attrs.define(eq=False)
class FillingFile(RealFile):
    """Takes ``left[0]`` more writes and allocations."""

    left: list[int]

    def _spend(self) -> None:
        if not self.left[0]:
            raise OSError(errno.ENOSPC, "no space")
        self.left[0] -= 1

    def write_at(self, position: int, data: Body) -> None:
        self._spend()
        super().write_at(position, data)

    def allocate(self, length: int, position: int = 0) -> None:
        self._spend()
        super().allocate(length, position)


@attrs.frozen
class FullDisk(RealFileSystem):
    """The files of the index are on a full disk."""

    left: list[int]

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        return FillingFile(path, file, self.left) if path.parent.name == "index" else file


@pytest.mark.parametrize("left", range(0, 14, 2))
def test_a_full_disk_stops_the_dispatch_and_loses_nothing(tmp_path: Path, left: int) -> None:
    files = FullDisk([left])
    batch = batch_of(RECS)
    index = owner(tmp_path, SMALL, files)
    index.resume(0, batch.end_offset)
    if left < 11:
        with pytest.raises(OSError, match="no space"):
            index.dispatch(batch)
    files.left[0] = 100
    index.dispatch(batch)
    assert answers(index) == expected(batch.physical_offsets.tolist())
    index.close()
    assert verify(tmp_path / "index", SMALL.slots, SMALL.entries) == []


# --- damage ---


def until_damage(index: Any) -> tuple[list[int], CorruptIndex]:
    """The offsets that a look-up yields before it raises, and the error."""
    found: list[int] = []
    with pytest.raises(CorruptIndex) as error:
        found.extend(index.offsets("t", "all", *FOREVER))
    return found, error.value


@pytest.mark.parametrize(
    ("position", "data", "what"),
    [
        (36, SLOT.pack(-5), "indexCount is -5"),
        (36, SLOT.pack(900), "indexCount is 900"),
        (32, SLOT.pack(900), "hashSlotCount is 900"),
        (16, ENTRY.pack(0, 1 << 40, 0, 0)[4:12], "it claims physical offsets"),
        (HEADER.size, SLOT.pack(1 << 20), "slot 0 says"),
        (HEADER.size, SLOT.pack(-1), "slot 0 says"),
        (ONE_SLOT.shape.entry_at(5) + 16, SLOT.pack(5), "entry 5 points to 5"),
        (ONE_SLOT.shape.entry_at(4) + 16, SLOT.pack(5), "entry 4 points to 5"),
        (ONE_SLOT.shape.entry_at(5), SLOT.pack(-1), "entry 5 cannot be in slot 0"),
    ],
)
def test_damage_ends_the_walk_of_its_file_and_is_told_at_the_end(
    tmp_path: Path, position: int, data: bytes, what: str
) -> None:
    """The reader takes the missing keys from the log; the owner builds the file again."""
    batch = built(tmp_path, RECS, ONE_SLOT)
    damaged = index_paths(tmp_path)[1]
    poke(damaged, position, data)
    assert verify(tmp_path / "index", ONE_SLOT.slots, ONE_SLOT.entries) != []
    offsets = batch.physical_offsets.tolist()
    index = resumed(reader(tmp_path, ONE_SLOT), batch)
    found, error = until_damage(index)
    assert what in str(error)
    assert error.path == damaged
    assert set(offsets[:2] + offsets[5:]) <= set(found) <= set(offsets)
    assert found == sorted(found, reverse=True)
    if position < HEADER.size and position != 32:
        assert found == offsets[::-1]
    index.close()
    if position >= HEADER.size:  # the rest of a file is checked only after a crash
        (tmp_path / "abort").touch()
        CheckpointKeeper(RealFileSystem(), tmp_path).lower_index(0)
    resumed(owner(tmp_path, ONE_SLOT), batch).close()
    assert verify(tmp_path / "index", ONE_SLOT.slots, ONE_SLOT.entries) == []
    assert answers(resumed(reader(tmp_path, ONE_SLOT), batch)) == expected(offsets)


# --- gaps and crashes ---


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("left", ["clean", "abort"])
def test_a_lost_file_is_found_and_completed(tmp_path: Path, lost: int, left: str) -> None:
    batch = built(tmp_path, RECS)
    if left == "abort":
        (tmp_path / left).touch()
    index_paths(tmp_path)[lost].unlink()
    before = snapshot(tmp_path)
    index = resumed(reader(tmp_path), batch)
    assert answers(index) == expected(batch.physical_offsets.tolist())
    index.close()
    assert snapshot(tmp_path) == before
    made = resumed(owner(tmp_path), batch)
    assert answers(made) == expected(batch.physical_offsets.tolist())
    made.close()
    assert verify(tmp_path / "index", SMALL.slots, SMALL.entries) == []
    assert answers(resumed(reader(tmp_path), batch)) == expected(batch.physical_offsets.tolist())


def test_the_checkpoint_vouches_for_no_file_that_was_cut(tmp_path: Path) -> None:
    """The file became full with a message that the log has lost."""
    batch = built(tmp_path, RECS[:5])
    index = owner(tmp_path)
    index.resume(0, int(batch.physical_offsets[4]))
    assert index_timestamp(tmp_path) == RECS[2].time_ms  # the first file ends with one of its keys
    index.close()


def test_after_a_crash_the_checkpoint_decides_which_files_are_checked(tmp_path: Path) -> None:
    """It vouches for no file that is to be made anew: a second crash may leave that unsynced."""
    batch = built(tmp_path, RECS)
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    torn(tmp_path, 1, 3)
    index = reader(tmp_path)
    assert index.resume(0, batch.end_offset) <= int(batch.physical_offsets[2])
    vouch(tmp_path, RECS[-1].time_ms)
    assert index.resume(0, batch.end_offset) == int(batch.physical_offsets[-1])
    kept = IndexFile(RealFileSystem(), index_paths(tmp_path)[0], SMALL.shape).header()
    index_paths(tmp_path)[1].unlink()
    owner(tmp_path).resume(0, batch.end_offset)
    assert index_timestamp(tmp_path) == kept.end_timestamp_ms


def test_damage_in_the_log_between_two_files_is_no_gap(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the index would be built again from there at each open; nor are keyless records."""
    recs = [Rec(), Rec.keyed("a b c d e"), Rec.keyed("lost"), Rec(), Rec(), Rec.keyed("f"), Rec()]
    batch = batch_of(recs)
    write_log(tmp_path, batch)
    index = owner(tmp_path)
    index.resume(0, 0)
    index.dispatch(batch[:2])
    index.dispatch(batch[3:])
    index.close()
    poke(tmp_path / "commitlog" / f"{0:020}", int(batch.physical_offsets[2]) + 4, bytes(8))
    last = int(batch.physical_offsets[5])
    assert reader(tmp_path).resume(0, batch.end_offset) == last
    index = owner(tmp_path)
    assert index.resume(0, batch.end_offset) == last
    index.close()
    assert caplog.text == ""


def torn(path: Path, at: int, number: int) -> None:
    """Zero an entry, as if it had never reached the disk."""
    poke(index_paths(path)[at], SMALL.shape.entry_at(number), bytes(ENTRY.size))


def test_after_a_crash_a_torn_file_is_built_again(tmp_path: Path) -> None:
    batch = built(tmp_path, RECS)
    whole = [path.read_bytes() for path in index_paths(tmp_path)]
    (tmp_path / "abort").touch()
    torn(tmp_path, -1, 1)
    before = snapshot(tmp_path)
    index = resumed(reader(tmp_path), batch)
    assert answers(index) == expected(batch.physical_offsets.tolist())
    assert snapshot(tmp_path) == before
    name = index_paths(tmp_path)[-1].name
    resumed(owner(tmp_path), batch).close()
    assert [path.read_bytes() for path in index_paths(tmp_path)] == whole
    assert (tmp_path / "lakelog" / "quarantine" / name).exists()


def test_what_a_crash_left_of_a_making_is_passed_over(tmp_path: Path) -> None:
    batch = built(tmp_path, RECS)
    (tmp_path / "index" / "20990101000000000.tmp").write_bytes(b"x")
    (tmp_path / "index" / "20990101000000000").touch()
    for make in (reader, owner):
        index = resumed(make(tmp_path), batch)
        assert answers(index) == expected(batch.physical_offsets.tolist())
        index.close()
    assert not (tmp_path / "index" / "20990101000000000.tmp").exists()


# --- the ends of the log ---


def test_a_reader_returns_what_is_behind_the_end_once_it_is_dispatched(tmp_path: Path) -> None:
    batch = built(tmp_path, RECS)
    offsets = batch.physical_offsets.tolist()
    index = reader(tmp_path)
    assert index.resume(0, offsets[4]) <= offsets[4]
    assert find(index, "all") == offsets[3::-1]
    index.dispatch(batch[4:6])
    assert find(index, "all") == offsets[5::-1]
    index.truncate(offsets[5])
    assert find(index, "all") == offsets[4::-1]
    index.dispatch(batch[5:])
    assert find(index, "all") == offsets[::-1]


# --- files of another length: built again where they were cut, refused where settings differ ---


@pytest.mark.sample(4)
@pytest.mark.parametrize("length", [1, 60, 100, -20])
@pytest.mark.parametrize("at", [0, 1, -1])
def test_one_file_of_another_length_is_told_of_by_the_reader_and_built_again_by_the_owner(
    tmp_path: Path, at: int, length: int
) -> None:
    batch = built(tmp_path, RECS)
    offsets = batch.physical_offsets.tolist()
    path = index_paths(tmp_path)[at]
    path.write_bytes(path.read_bytes()[:length])
    index = resumed(reader(tmp_path), batch)
    found, error = until_damage(index)
    assert "bytes, but" in str(error)
    assert found == offsets[::-1]
    resumed(owner(tmp_path), batch).close()
    assert answers(resumed(reader(tmp_path), batch)) == expected(offsets)
    assert (tmp_path / "lakelog" / "quarantine" / path.name).exists()


def test_other_settings_are_told_from_damage(tmp_path: Path) -> None:
    batch = built(tmp_path, RECS)
    before = snapshot(tmp_path)
    for other in (attrs.evolve(SMALL, slots=50), attrs.evolve(SMALL, entries=7)):
        with pytest.raises(CorruptIndex, match=r"hash-index\.slots=\d+ and hash-index\.entries"):
            owner(tmp_path, other).resume(0, batch.end_offset)
        assert snapshot(tmp_path) == before


@pytest.mark.parametrize("length", [1, 39, 60])
def test_the_only_file_is_built_again_where_it_was_cut(tmp_path: Path, length: int) -> None:
    batch = built(tmp_path, [Rec(), *RECS[:2]])
    (path,) = index_paths(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    resumed(owner(tmp_path), batch).close()
    assert [each.read_bytes() for each in index_paths(tmp_path)] == [whole]


# --- what is durable, and when ---


def test_a_full_file_is_synced_before_the_checkpoint_moves(tmp_path: Path) -> None:
    files = SeenFiles()
    index = owner(tmp_path, SMALL, files)
    index.resume(0, 0)
    index.dispatch(batch_of(RECS[:3]))
    index.flush()
    seen, name = files.named(), index_paths(tmp_path)[0].name
    assert ("sync", name) in seen
    at = seen.index(("sync", name))
    assert not [path for _, path in seen[:at] if "checkpoint" in path]
    assert [path for _, path in seen[at:] if "checkpoint" in path]
    index.close()


def test_no_file_is_covered_behind_one_whose_sync_failed(tmp_path: Path) -> None:
    files = NthFails()
    index = owner(tmp_path, SMALL, files)
    index.resume(0, 0)
    files.arm(1, errno.EIO, lambda call, path: call == "sync" and path.name.isdigit())
    index.dispatch(batch_of(RECS))
    with pytest.raises(OSError, match="EIO"):
        index.flush()
    assert files.fired.is_set()
    assert index_timestamp(tmp_path) == 0
    with pytest.raises(OSError, match="EIO"):
        index.close()


def test_slots_ahead_of_the_header_of_the_only_file_are_set_back(tmp_path: Path) -> None:
    built(tmp_path, RECS[:1], ONE_SLOT)
    (path,) = index_paths(tmp_path)
    header = path.read_bytes()[: HEADER.size]
    batch = built(tmp_path, RECS[:2], ONE_SLOT)
    poke(path, 0, header)
    (tmp_path / "abort").touch()
    index = resumed(owner(tmp_path, ONE_SLOT), batch)
    assert find(index, "all") == batch.physical_offsets.tolist()[::-1]
    index.close()
    assert verify(tmp_path / "index", ONE_SLOT.slots, ONE_SLOT.entries) == []


def test_a_full_disk_amid_a_record_of_many_files_enters_no_key_twice(tmp_path: Path) -> None:
    batch = batch_of([Rec.keyed(" ".join(f"k{at}" for at in range(17)))])
    for left in range(1, 16):
        files, path = FullDisk([left]), tmp_path / f"{left}"
        index = owner(path, SMALL, files)
        index.resume(0, batch.end_offset)
        with pytest.raises(OSError, match="no space"):
            index.dispatch(batch)
        files.left[0] = 100
        index.dispatch(batch)
        index.close()
        made = [IndexFile(RealFileSystem(), each, SMALL.shape) for each in index_paths(path)]
        assert sum(each.header().count - 1 for each in made) == 17


def test_no_key_is_counted_that_a_full_disk_left_out(tmp_path: Path) -> None:
    batch = batch_of(RECS[:2])
    for left in range(1, 5):
        files, path = FullDisk([left]), tmp_path / f"{left}"
        index = owner(path, SMALL, files)
        index.resume(0, batch.end_offset)
        with suppress(OSError):
            index.dispatch(batch)
        if (path / "index").exists():
            assert verify(path / "index", SMALL.slots, SMALL.entries) == []
        files.left[0] = 100
        index.dispatch(batch)
        assert find(index, "all") == batch.physical_offsets.tolist()[::-1]
        index.close()
