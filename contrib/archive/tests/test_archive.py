"""Archived segments are whole and verified, and read back unchanged; others stay in the log."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from lakelog.errors import SettingsError
from lakelog.format.layout import segment_name
from lakelog.hooks import SegmentSource
from lakelog_archive.archive import (
    Archive,
    ArchiveError,
    ArchiveFolder,
    NotTheSame,
    from_bytes,
    place_at,
)
from lakelog_testing import SegmentSourceContract

SIZE = 64 << 10


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ArchiveFolder]:
    """A folder on a disk, and a folder of a system without renames and syncs."""
    url = str(tmp_path / "archive") if request.param == "local" else f"memory://{uuid4().hex}"
    made = place_at(url)
    yield made
    if made.fs.exists(made.folder):
        made.fs.rm(made.folder, recursive=True)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    file = tmp_path / segment_name(SIZE)
    file.write_bytes(os.urandom(SIZE))
    return file


def test_a_segment_is_kept_once_and_a_later_process_finds_it(
    place: ArchiveFolder, segment: Path
) -> None:
    archive = Archive(place, read_bytes=4096)
    line = archive.keep(segment, SIZE)
    assert line.sha256 == hashlib.sha256(segment.read_bytes()).hexdigest()
    assert archive.keep(segment, SIZE) == line
    assert place.sha256(f"commitlog/{segment.name}") == (line.size, line.sha256)
    assert list(Archive(place).starts()) == [SIZE]


def test_what_was_lost_there_is_put_there_again(place: ArchiveFolder, segment: Path) -> None:
    archive = Archive(place)
    line = archive.keep(segment, SIZE)
    place.fs.rm(place.path(f"commitlog/{segment.name}"))
    with pytest.raises(ArchiveError, match=segment.name):
        archive.read(SIZE, 0, 8)
    archive.keep(segment, SIZE)
    assert place.sha256(f"commitlog/{segment.name}") == (line.size, line.sha256)


def test_another_segment_in_its_place_is_refused(place: ArchiveFolder, segment: Path) -> None:
    archive = Archive(place)
    line = archive.keep(segment, SIZE)
    segment.write_bytes(os.urandom(SIZE))
    with pytest.raises(NotTheSame, match="another store"):
        archive.keep(segment, SIZE)
    assert archive.line(SIZE) == line
    assert place.sha256(f"commitlog/{segment.name}") == (line.size, line.sha256)


def test_a_line_that_was_never_finished_counts_as_none(place: ArchiveFolder, segment: Path) -> None:
    archive = Archive(place)
    archive.keep(segment, SIZE)
    place.fs.pipe_file(place.path(f"manifest/{segment.name}"), b'{"v": 1, "sta')
    assert archive.line(SIZE) is None
    archive.keep(segment, SIZE)
    assert archive.line(SIZE) is not None


class Changing(ArchiveFolder):
    """Stores bytes that differ from the given ones."""

    def copy_in(self, source: Path, name: str) -> None:
        super().copy_in(source, name)
        content = bytearray(self.fs.cat_file(self.path(name)))
        content[77] ^= 1
        self.fs.pipe_file(self.path(name), bytes(content))


def test_what_does_not_come_back_the_same_is_not_archived(
    place: ArchiveFolder, segment: Path
) -> None:
    archive = Archive(Changing(place.fs, place.folder))
    with pytest.raises(ArchiveError, match=r"read back .* stays where it is"):
        archive.keep(segment, SIZE)
    assert list(archive.starts()) == []


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files and folders that are synced or read back from now on, in order."""
    found: list[str] = []
    fsync, sha256 = os.fsync, ArchiveFolder.sha256

    def synced(fd: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{fd}")).relative_to(tmp_path).as_posix())
        fsync(fd)

    def read_back(*given: Any) -> Any:
        found.append("read back")
        return sha256(*given)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(ArchiveFolder, "sha256", read_back)
    return found


def test_the_order_is_copied_proved_and_then_written_down(
    tmp_path: Path, segment: Path, done: list[str]
) -> None:
    place = place_at(str(tmp_path / "a"))
    Archive(place).keep(segment, SIZE)  # the folders are there from now on
    other = tmp_path / segment_name(0)
    other.write_bytes(b"x" * SIZE)
    done.clear()
    Archive(place).keep(other, 0)
    name = segment_name(0)
    assert done == [
        *(f"a/commitlog/{name}", "a/commitlog", "read back"),
        *(f"a/manifest/{name}.tmp", "a/manifest", "a/manifest"),
    ]


def test_a_folder_that_is_there_is_made_durable_all_the_same(
    tmp_path: Path, segment: Path, done: list[str]
) -> None:
    """Its creator may have been killed before it synced the parent folders."""
    for name in ("commitlog", "manifest"):
        (tmp_path / "old" / "uuid" / name).mkdir(parents=True)
    Archive(place_at(str(tmp_path / "old" / "uuid"))).keep(segment, SIZE)
    assert done.index("old/uuid") < done.index(f"old/uuid/commitlog/{segment.name}")
    assert "old" in done


@pytest.mark.parametrize("step", ["copy_in", "sha256", "write"])
def test_what_ends_half_way_is_begun_anew(
    place: ArchiveFolder, segment: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(ArchiveFolder, step, failing)
        with pytest.raises(OSError, match="Input/output"):
            Archive(place).keep(segment, SIZE)
    assert list(Archive(place).starts()) == []
    line = Archive(place).keep(segment, SIZE)
    assert place.sha256(f"commitlog/{segment.name}") == (SIZE, line.sha256)


def test_a_url_that_nothing_understands_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"fsspec\.url"):
        place_at("nowhere://x")


def test_lines_that_are_none() -> None:
    bad = [b"", b"{}", b"[]", b'{"v": 2}', b'{"v":1,"start":0,"size":1,"sha256":"zz"}']
    assert [from_bytes(each) for each in bad] == [None] * 5


class TestArchive(SegmentSourceContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make(self, segments: Mapping[int, bytes]) -> SegmentSource:
        archive = Archive(place_at(str(self.folder / "archive")), read_bytes=4096)
        for start, content in segments.items():
            file = self.folder / segment_name(start)
            file.write_bytes(content)
            archive.keep(file, start)
        return archive
