"""Segments of one log: the order of commits, when files are let go of, and views meanwhile."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from core.tests.store.faults import SeenFiles
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.files.preallocation import Preallocator, SegmentMaker
from lakelog.hooks import WriterTraits
from lakelog.log.segments import MOST_OPEN, Segments
from lakelog.message import Body
from lakelog.processes.positions import Positions

pytestmark = pytest.mark.both_ways

SIZE: Final = 4096


class Kept:
    """A staged segment that says what it is told."""

    def __init__(self, name: int, file: File, told: list[str]) -> None:
        self.name, self.file, self.told = name, file, told
        self.data, self.committed = bytearray(SIZE), 0
        self.end = 0

    def write(self, position: int, data: Body) -> None:
        self.data[position : position + len(data)] = data
        self.end = position + len(data)

    def view(self, position: int, length: int) -> memoryview:
        return memoryview(self.data)[position : position + length]

    def seal(self) -> None:
        self.told.append(f"seal {self.name}")

    def commit(self) -> int:
        if self.end > self.committed:
            self.told.append(f"commit {self.name}")
            self.file.write_at(0, self.data)
            self.committed = self.end
        return self.end

    def sync(self) -> None:
        assert self.committed == self.end or self.name == self.newest
        self.told.append(f"sync {self.name}")

    newest = -1

    def close(self) -> None:
        self.told.append(f"close {self.name}")
        self.file.close()


class Keeping:
    """Opens them, or refuses to."""

    traits = WriterTraits(staged=True)

    def __init__(self) -> None:
        self.made: list[Kept] = []
        self.told: list[str] = []

    def open(self, file: File, size_bytes: int, position: int) -> Kept:
        assert (size_bytes, position) == (SIZE, 0)
        self.made.append(Kept(len(self.made), file, self.told))
        Kept.newest = len(self.made) - 1
        return self.made[-1]


@pytest.fixture
def writer() -> Keeping:
    return Keeping()


def _raised(cause: BaseException) -> Exception:
    raise cause


def segments_of(maker: SegmentMaker, writer: Keeping, position: int = 0) -> Segments:
    preallocator = Preallocator(maker, ahead=False, fail=_raised)
    return Segments(maker, preallocator, writer, 0, position, 0, Positions())


@pytest.fixture
def segments(tmp_path: Path, writer: Keeping) -> Segments:
    maker = SegmentMaker(RealFileSystem(), tmp_path / "log", tmp_path, SIZE)
    maker.directory.mkdir()
    return segments_of(maker, writer)


def rolled(segments: Segments, count: int) -> None:
    for number in range(count):
        segments.active.write(0, b"%d" % (number % 10) * SIZE)
        segments.prepare_roll()
        segments.roll()
    segments.active.write(0, b"x")


def synced(segments: Segments) -> None:
    """Sync all that was written, as an offset of it is the end of the log."""
    segments.sync(0, segments.active_offset + 1)


def test_a_sync_closes_what_is_full_once_all_is_durable(
    segments: Segments, writer: Keeping
) -> None:
    rolled(segments, 2)
    view = segments.view(1, 10)
    synced(segments)  # commits what was sealed after the last commit
    begun = ["seal 0", "seal 1"]
    durable = ["commit 0", "commit 1", "sync 0", "sync 1", "sync 2"]
    assert writer.told == [*begun, *durable, "close 0", "close 1"]
    assert bytes(view) == b"0" * 10
    assert bytes(segments.view(1, 10)) == b"0" * 10
    assert bytes(segments.view(SIZE, 3)) == b"111"
    synced(segments)
    assert writer.told[len(begun) + len(durable) + 2 :] == ["sync 2"]


def test_a_sync_covers_segments_that_another_process_has_made(
    tmp_path: Path, writer: Keeping
) -> None:
    """That one may have died before it synced the file, and the folder that names it."""
    files = SeenFiles()
    maker = SegmentMaker(files, tmp_path / "log", tmp_path, SIZE)
    maker.directory.mkdir()
    maker.make(0).file.close()
    segments = segments_of(maker, writer, SIZE)
    files.seen.clear()
    synced(segments)
    assert files.named("sync", "sync_dir") == [("sync", f"{0:020}"), ("sync_dir", "log")]
    assert writer.told == ["sync 0"]


def test_a_new_segment_is_durable_before_it_is_used(tmp_path: Path) -> None:
    """At its full length, with blocks; then it gets its name, by a sync of the log's folder."""
    files = SeenFiles()
    (tmp_path / "log").mkdir()
    SegmentMaker(files, tmp_path / "log", tmp_path, SIZE).make(0).file.close()
    steps = [call for call, _ in files.seen]
    assert steps == ["create", "open", "truncate", "allocate", "sync", "rename", "sync_dir"]
    assert files.seen[-1] == ("sync_dir", tmp_path / "log")


def test_threads_that_read_the_same_segments_get_on(segments: Segments, tmp_path: Path) -> None:
    """More of them than stay open, so that each is closed again and again."""
    count = MOST_OPEN + 9
    rolled(segments, count)
    synced(segments)

    def read(seed: int) -> bool:
        numbers = random.Random(seed).choices(range(count), k=500)
        return all(
            bytes(segments.view(number * SIZE, 2)) == b"%d" % (number % 10) * 2
            for number in numbers
        )

    assert read(9)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(4), timeout=60))
    mapped = Path("/proc/self/maps").read_text().count(f"{tmp_path}/log/")
    assert mapped <= MOST_OPEN + 2
