"""A directory that holds one crash image after another always equals the image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.files.filesystem import FileSystem, write_file
from lakelog_testing.crash import Image
from lakelog_testing.crash.unsynced import ImageDirectory, UnsyncedFileSystem

FIRST = Image("", ("d", "d/e"), {"a": b"1" * 5000, "d/b": b"2", "d/e/c": b"3"})
OTHER = Image("", ("d", "f"), {"a": b"1" * 10, "d/b": b"2", "f/c": b""})
BARE = Image("", (), {})


def held(path: Path) -> tuple[set[str], dict[str, bytes]]:
    found = [(str(each.relative_to(path)), each) for each in path.rglob("*")]
    files = {name: each.read_bytes() for name, each in found if each.is_file()}
    return {name for name, each in found if each.is_dir()}, files


def becomes(place: ImageDirectory, image: Image) -> bool:
    place.become(image)
    return held(place.path) == (set(image.folders), image.files)


@pytest.fixture
def place(tmp_path: Path) -> ImageDirectory:
    return ImageDirectory(tmp_path / "image", UnsyncedFileSystem())


def test_it_becomes_one_image_after_another(place: ImageDirectory) -> None:
    assert all(becomes(place, each) for each in (FIRST, OTHER, FIRST, BARE, OTHER, OTHER))


def a_file_is_written(files: FileSystem, path: Path) -> None:
    file = files.open(path / "d" / "b", write=True)
    file.write_at(0, b"changed")
    file.close()


def everything_in_a_folder_goes(files: FileSystem, path: Path) -> None:
    files.unlink(path / "d" / "e" / "c")
    files.remove_dir(path / "d" / "e")


def a_folder_is_made_and_filled(files: FileSystem, path: Path) -> None:
    files.make_dir(path / "d" / "e" / "new" / "er")
    files.open(path / "d" / "e" / "new" / "er" / "x", write=True, create=True).close()


CHANGES: dict[str, Callable[[FileSystem, Path], object]] = {
    "written": a_file_is_written,
    "replaced": lambda files, path: write_file(files, path / "a", b"changed"),
    "moved": lambda files, path: files.rename(path / "a", path / "d" / "new"),
    "exchanged": lambda files, path: files.exchange(path / "a", path / "d" / "b"),
    "emptied": everything_in_a_folder_goes,
    "filled": a_folder_is_made_and_filled,
    "folder moved": lambda files, path: files.rename(path / "d" / "e", path / "moved"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_others_did_is_undone(change: str, place: ImageDirectory) -> None:
    for then in (FIRST, OTHER, BARE):
        place.become(FIRST)
        CHANGES[change](place.files, place.path)
        assert held(place.path) != (set(FIRST.folders), FIRST.files)
        assert becomes(place, then)
        assert becomes(place, FIRST)
