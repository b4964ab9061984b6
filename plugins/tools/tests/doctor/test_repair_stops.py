"""A repair that is killed at any point: the next one mends the rest, and loses nothing."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest

from core.tests.store.support import SEGMENT, segments
from lakelog import PutResult
from lakelog.errors import LakelogError
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.recovery.quarantine import entries
from lakelog_testing.copies import copy_store
from plugins.tools.tests.doctor.repair_support import (
    FILES,
    bodies,
    read,
    repair_small,
    sound,
    write,
)


class _Stop(Exception):
    """Stands for the end of the process."""


class _Counted(RealFileSystem):
    """Ends, as if killed, before the n-th change."""

    def __init__(self, left: int) -> None:
        object.__setattr__(self, "left", [left])

    left: list[int]

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


@pytest.fixture
def damaged(path: Path, puts: list[PutResult]) -> Path:
    """A stray, a missing segment, damage, and a torn tail."""
    (path / "commitlog" / "notes.txt").write_bytes(b"mine")
    segments(path)[1].unlink()
    write(path, puts[10].physical_offset + 200, b"\xff")
    write(path, puts[99].physical_offset + 200, b"\xff")
    return path


def _is_done(path: Path, changes: int) -> bool:
    """Repair, and end after ``changes`` changes; return whether the repair was complete before."""
    try:
        repair_small(path, files=_Counted(changes))
    except (_Stop, LakelogError):
        return False
    return True


def _stop_everywhere(damaged: Path, puts: list[PutResult], into: Path, step: int) -> int:
    lost = {n for n, each in enumerate(puts) if each.physical_offset // SEGMENT == 1} | {10, 99}
    expected = bodies(puts, without=lost)
    places = {0, puts[10].physical_offset, puts[99].physical_offset}
    for number in count(0, step):
        path = into / str(number)
        copy_store(damaged, path)
        done = _is_done(path, number)
        assert read(path)[0] == expected
        repair_small(path)
        assert (read(path), sound(path)) == ((expected, []), True)
        assert {each["offset"] for each in entries(FILES, path)} == places
        shutil.rmtree(path)
        if done:
            return number
    raise AssertionError


def test_wherever_it_is_stopped_the_next_repair_goes_on(
    damaged: Path, puts: list[PutResult], tmp_path: Path
) -> None:
    assert _stop_everywhere(damaged, puts, tmp_path, 23) > 20


@pytest.mark.slow
def test_it_goes_on_after_every_single_change(
    damaged: Path, puts: list[PutResult], tmp_path: Path
) -> None:
    assert _stop_everywhere(damaged, puts, tmp_path, 1) > 20
