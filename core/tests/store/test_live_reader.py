"""A reader beside a living owner: what it saw half-written is looked at again, and not lost."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

import lakelog
from lakelog.files.filesystem import RealFileSystem
from lakelog.log.reading.log_reader import LogReader
from lakelog.log.reading.sources import FileExtent, FileSource

SEGMENT_BYTES = 1 << 20
COUNT = 300


class HalfWritten(FileSource):
    """The first reads see zeros where the owner has not yet copied a record to."""

    def __init__(self, path: Path, hole: int, looks: int) -> None:
        super().__init__(RealFileSystem(), path / "commitlog", SEGMENT_BYTES)
        self.hole = hole
        self.looks = looks

    def extents(self, start: int) -> Generator[FileExtent, None, None]:
        for extent in super().extents(start):
            whole = self.looks <= 0
            self.looks -= 1
            yield extent if whole else _Holed(extent, self.hole)


class _Holed(FileExtent):
    def __init__(self, extent: FileExtent, hole: int) -> None:
        self.__dict__.update(extent.__dict__)
        self._hole = hole

    def read(self, offset: int, length: int) -> memoryview:
        data = bytearray(super().read(offset, length))
        for at in range(self._hole, self._hole + 100):
            if 0 <= at - offset < len(data):
                data[at - offset] = 0
        return memoryview(bytes(data))


class Everything:
    """Bounds of a reader that goes by the files."""

    def minimum(self) -> int:
        return 0

    def end(self) -> int | None:
        return None


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with lakelog.open(path, plugins=[], segment_size_bytes=SEGMENT_BYTES, flush="none") as opened:
        opened.put_batch([lakelog.Message("t", b"y" * 500) for _ in range(COUNT)])
    return path


def _read(source: FileSource, *, live: bool) -> tuple[int, int]:
    damage: list[object] = []
    reader = LogReader(source, Everything(), lambda: live)
    return sum(1 for _ in reader.messages(None, None, damage.append)), len(damage)


def test_what_was_half_written_is_read_at_the_second_look(store: Path) -> None:
    assert _read(HalfWritten(store, hole=60_000, looks=1), live=True) == (COUNT, 0)


def test_damage_that_stays_is_reported_beside_an_owner_too(store: Path) -> None:
    messages, damage = _read(HalfWritten(store, hole=60_000, looks=9), live=True)
    assert (messages < COUNT, damage) == (True, 1)


class UpTo(Everything):
    """Bounds of a reader beside an owner that says how far it has come."""

    def __init__(self, end: int) -> None:
        self._end = end

    def end(self) -> int | None:
        return self._end


@pytest.mark.parametrize("looks", [1, 9])
def test_damage_at_the_end_that_an_owner_names_is_no_half_record(store: Path, looks: int) -> None:
    with lakelog.open(store, mode="read", plugins=[]) as opened:
        end = opened.max_offset
    source = HalfWritten(store, hole=end - 300, looks=looks)
    damage: list[object] = []
    reader = LogReader(source, UpTo(end), lambda: True)
    count = sum(1 for _ in reader.messages(None, None, damage.append))
    assert (count, len(damage)) == ((COUNT, 0) if looks == 1 else (COUNT - 1, 1))


def test_without_an_owner_there_is_no_second_look(store: Path) -> None:
    messages, damage = _read(HalfWritten(store, hole=60_000, looks=1), live=False)
    assert (messages < COUNT, damage) == (True, 1)


def test_an_owner_that_came_meanwhile_is_given_a_second_look(store: Path) -> None:
    answers = iter([False])
    damage: list[object] = []
    source = HalfWritten(store, hole=60_000, looks=1)
    reader = LogReader(source, Everything(), lambda: next(answers, True))
    assert sum(1 for _ in reader.messages(None, None, damage.append)) == COUNT
    assert not damage
