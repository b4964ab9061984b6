"""Zeros are passed over wherever they come from, and never a byte that is other than zero."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.files.filesystem import File, RealFileSystem
from lakelog.files.segment_files import SegmentFile
from lakelog.log.reading.sources import FileExtent

WINDOW = 128 << 10
SIZE = 3 * WINDOW + 5
EDGES = (0, 4095, WINDOW - 1, WINDOW, 2 * WINDOW + 77, SIZE - 1)


def a_file(path: Path, *, touched: bool) -> File:
    file = RealFileSystem().open(path, write=True, create=True)
    file.allocate(SIZE)
    if touched:  # what was read stands in the page cache, and passes for data
        file.read_at(0, SIZE)
        file.map(SIZE, writable=False)[:]
    return file


@given(
    places=st.sets(st.sampled_from(EDGES) | st.integers(0, SIZE - 1), max_size=4),
    begin=st.sampled_from(EDGES) | st.integers(0, SIZE),
    touched=st.booleans(),
)
def test_no_byte_is_passed_over(
    tmp_path_factory: pytest.TempPathFactory, places: set[int], begin: int, touched: bool
) -> None:
    path = tmp_path_factory.mktemp("zeros") / "f"
    file = a_file(path, touched=touched)
    for place in places:
        file.write_at(place, b"\xff")
    assert file.next_data(SIZE) is None
    due = min((place for place in places if place >= begin), default=None)
    found = file.next_data(begin)
    if due is None:
        assert found in (None, begin)
    else:
        assert found is not None
        assert begin <= found <= due < found + WINDOW
    file.close()
    path.unlink()


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
    extent = FileExtent(SegmentFile(file.path, 7 * SIZE, SIZE), asked, SIZE)  # type: ignore[arg-type]  # that much of a file
    start = extent.start
    found = extent.next_data(start + 9)
    assert found is not None
    assert start + place - WINDOW < found <= start + place
    assert [extent.next_data(each) for each in (start + 99, found)] == [found] * 2
    assert asked.asked == [9]
    assert extent.next_data(start + 1) is not None
    behind = place + 1
    assert [extent.next_data(start + at) for at in (behind, behind + 9, SIZE)] == [None] * 3
    assert asked.asked == [9, 1, behind]
