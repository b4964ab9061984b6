"""A log with an archive before it is one log; an extent asks its file once for the same zeros."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

import lakelog
from core.tests.files.test_filesystem import FILE_BYTES, WINDOW, a_file
from core.tests.store.support import FileBounds
from lakelog import Message
from lakelog.errors import OffsetOutOfRange
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.files.segment_files import SegmentFile
from lakelog.format.record_batch import Damage, RecordBatch
from lakelog.log.log_reader import LogReader
from lakelog.log.sources import FileExtent, FileSource
from lakelog.message import StoredMessage

SIZE = 64 << 10
FILES = RealFileSystem()


@attrs.define
class Folder:
    """An archive that is a folder; :ivar asked: how often it was looked at."""

    path: Path
    asked: int = 0

    def starts(self) -> Sequence[int]:
        self.asked += 1
        return sorted(int(each.name) for each in self.path.iterdir())

    def read(self, start: int, position: int, length: int) -> bytes:
        with (self.path / f"{start:020d}").open("rb") as file:
            file.seek(position)
            return file.read(length)


@attrs.frozen
class Both:
    """A log, its archive, and all messages that it ever had."""

    log: Path
    archive: Folder
    reader: LogReader
    messages: list[StoredMessage]

    def move(self, start: int) -> None:
        file = self.log / f"{start:020d}"
        shutil.copy(file, self.archive.path / file.name)
        file.unlink()

    def offsets(self, start: int | None) -> list[int]:
        assert not any(isinstance(each, Damage) for each in self.reader.pieces(start, None))
        return [each.physical_offset for each in self.reader.messages(start, None, None)]


@pytest.fixture
def both(tmp_path: Path) -> Both:
    path = tmp_path / "s"
    with lakelog.open(path, segment_size_bytes=SIZE, flush="inline", dispatchers=()) as store:
        store.put_batch([Message("t", b"x" * 900, queue_id=0) for _ in range(320)])
        messages = list(store.scan())
    old = tmp_path / "old"
    old.mkdir()
    source = FileSource(FILES, path / "commitlog", SIZE)
    reader = LogReader(source, FileBounds(source), lambda: False)
    archive = Folder(old)
    reader.add_archive(archive, SIZE)
    return Both(path / "commitlog", archive, reader, messages)


def test_what_was_moved_is_read_where_it_is_now(both: Both) -> None:
    all_offsets = [each.physical_offset for each in both.messages]
    for start in range(0, 3 * SIZE, SIZE):
        assert both.offsets(0) == all_offsets
        both.move(start)
    assert both.offsets(0) == all_offsets
    assert (both.reader.min_offset, both.reader.oldest_offset) == (3 * SIZE, 0)
    assert both.offsets(None) == [each for each in all_offsets if each >= 3 * SIZE]
    assert both.offsets(all_offsets[5]) == all_offsets[5:]
    for each in both.messages[::40]:
        assert both.reader.look_up(each.physical_offset) == each


def test_a_scan_goes_on_where_segments_move(both: Both) -> None:
    pieces = both.reader.pieces(0, None)
    found = [next(pieces)]
    for start in range(0, 4 * SIZE, SIZE):
        both.move(start)
    found += list(pieces)
    assert not any(isinstance(each, Damage) for each in found)
    assert sum(len(each) for each in found if isinstance(each, RecordBatch)) == len(both.messages)


def test_reads_of_the_log_do_not_ask_the_archive(both: Both) -> None:
    both.move(0)
    both.archive.asked = 0
    both.offsets(None)
    last = both.messages[-1]
    assert both.reader.look_up(last.physical_offset) == last
    assert both.reader.check_start(last.physical_offset) == last.physical_offset
    assert both.archive.asked == 0


def test_what_neither_has_is_told(both: Both) -> None:
    for start in range(0, 3 * SIZE, SIZE):
        both.move(start)
    (both.archive.path / f"{SIZE:020d}").unlink()
    damage = [each for each in both.reader.pieces(0, None) if isinstance(each, Damage)]
    assert [(each.offset, each.end_offset) for each in damage] == [(SIZE, 2 * SIZE)]
    (both.archive.path / f"{0:020d}").unlink()
    with pytest.raises(OffsetOutOfRange):
        both.reader.look_up(0)


class Asked:
    """A file that counts how often it is asked where data stands."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.asked: list[int] = []

    def next_data(self, position: int) -> int | None:
        self.asked.append(position)
        return self._file.next_data(position)


def test_an_extent_asks_once_for_the_same_zeros(tmp_path: Path) -> None:
    file = a_file(tmp_path / "f", touched=True)
    place = 2 * WINDOW
    file.write_at(place, b"\x01")
    asked = Asked(file)
    extent = FileExtent(SegmentFile(file.path, 7 * FILE_BYTES, FILE_BYTES), asked, FILE_BYTES)  # type: ignore[arg-type]  # that much of a file
    start = extent.start
    found = extent.next_data(start + 9)
    assert found is not None
    assert start + place - WINDOW < found <= start + place
    assert [extent.next_data(each) for each in (start + 99, found)] == [found] * 2
    assert asked.asked == [9]
    assert extent.next_data(start + 1) is not None
    behind = place + 1
    assert [extent.next_data(start + at) for at in (behind, behind + 9, FILE_BYTES)] == [None] * 3
    assert asked.asked == [9, 1, behind]
