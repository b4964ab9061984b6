"""Where each small write is synced, the writer ``file`` writes beside its map; else through it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.files.filesystem import RealFileSystem
from lakelog.interfaces import SegmentWriter
from lakelog.message import Body
from lakelog.registry.builtin.filewriter import FEW_BYTES, FileWriter
from lakelog_testing import FaultyFile

SIZE = 64 << 10


class Counted(FaultyFile):
    beside_the_map = 0

    def write_at(self, position: int, data: Body) -> None:
        self.beside_the_map += 1
        super().write_at(position, data)


@pytest.fixture
def file(tmp_path: Path) -> Counted:
    made = RealFileSystem().open(tmp_path / "s", write=True, create=True)
    made.allocate(SIZE)
    return Counted(made)


@pytest.fixture
def writer(file: Counted) -> SegmentWriter:
    writer = FileWriter(16 << 10).open(file, SIZE, 0)
    writer.extend(0, SIZE)
    return writer


def put(writer: SegmentWriter, at: int, size: int) -> int:
    writer.write(at, bytes([at % 251]) * size)
    assert bytes(writer.view(at, size)) == bytes([at % 251]) * size
    return at + size


def test_a_lone_write_behind_each_sync(writer: SegmentWriter, file: Counted) -> None:
    at = put(writer, 0, 100)
    assert file.beside_the_map == 0  # nobody knows yet how often it is synced
    for count in range(1, 5):
        writer.sync()
        at = put(writer, at, 100)
        assert file.beside_the_map == count
    writer.close()


def test_only_the_first_write_behind_a_sync(writer: SegmentWriter, file: Counted) -> None:
    at = put(writer, 0, 100)
    writer.sync()
    for _ in range(10):
        at = put(writer, at, 100)
    assert file.beside_the_map == 1
    writer.close()


def test_not_behind_a_sync_of_much_or_of_nothing(writer: SegmentWriter, file: Counted) -> None:
    at = put(writer, 0, FEW_BYTES)
    writer.sync()
    at = put(writer, at, FEW_BYTES)
    writer.sync()
    writer.sync()
    put(writer, at, 100)
    assert file.beside_the_map == 0
    writer.close()
