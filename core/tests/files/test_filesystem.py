"""Files of the operating system: errors name them, writes are whole, and zeros are passed over."""

from __future__ import annotations

import errno
import gc
import os
import re
import weakref
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import NotOpened
from lakelog.files.filesystem import File, RealFileSystem

FILES = RealFileSystem()


def test_every_call_of_a_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    gone = FILES.open(path)
    os.close(gone.fileno())
    for call in (
        gone.size,
        gone.sync,
        gone.close,
        lambda: gone.read_at(0, 1),
        lambda: gone.write_at(0, b"x"),
        lambda: gone.allocate(1),
        lambda: gone.truncate(1),
        lambda: gone.next_data(0),
        lambda: gone.map(1, writable=False),
    ):
        with pytest.raises(OSError, match="cannot ") as caught:
            call()
        assert (caught.value.errno, caught.value.filename) == (errno.EBADF, str(path))


def test_every_call_by_name_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "none"
    for call in (
        lambda: FILES.open(path),
        lambda: FILES.unlink(path),
        lambda: FILES.remove_dir(path),
        lambda: FILES.sync_dir(path),
        lambda: FILES.rename(tmp_path / "other", path),
        lambda: FILES.exchange(tmp_path / "other", path),
    ):
        with pytest.raises(FileNotFoundError, match="cannot ") as caught:
            call()
        assert caught.value.filename == str(path)
    path.touch()
    with pytest.raises(FileExistsError, match="cannot make a directory"):
        FILES.make_dir(path)
    with pytest.raises(NotADirectoryError, match=f"cannot list: Not a directory: '{path}'"):
        FILES.list(path)


def test_a_write_that_stops_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, memoryview(data)[:3], at))
    file = FILES.open(tmp_path / "file", write=True, create=True)
    file.write_at(2, b"0123456789")
    file.close()
    assert (tmp_path / "file").read_bytes() == b"\0\0" + b"0123456789"


class Held:
    """An object of a frame, as a view of a map would be."""


def test_a_failed_open_keeps_no_frame(tmp_path: Path) -> None:
    """Python 3.12 and later keep the frames of an error that leaves a generator, in a cycle."""

    def failed_open() -> weakref.ref[Held]:
        held = Held()
        with suppress(FileNotFoundError):
            FILES.open(tmp_path / "missing")
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert failed_open()() is None
    finally:
        gc.enable()


WINDOW = 128 << 10
FILE_BYTES = 3 * WINDOW + 5
EDGES = (0, 4095, WINDOW - 1, WINDOW, 2 * WINDOW + 77, FILE_BYTES - 1)


def a_file(path: Path, *, touched: bool) -> File:
    file = RealFileSystem().open(path, write=True, create=True)
    file.allocate(FILE_BYTES)
    if touched:  # what was read stands in the page cache, and passes for data
        file.read_at(0, FILE_BYTES)
        file.map(FILE_BYTES, writable=False)[:]
    return file


@given(
    places=st.sets(st.sampled_from(EDGES) | st.integers(0, FILE_BYTES - 1), max_size=4),
    begin=st.sampled_from(EDGES) | st.integers(0, FILE_BYTES),
    touched=st.booleans(),
)
def test_no_byte_is_passed_over(
    tmp_path_factory: pytest.TempPathFactory, places: set[int], begin: int, touched: bool
) -> None:
    path = tmp_path_factory.mktemp("zeros") / "f"
    file = a_file(path, touched=touched)
    for place in places:
        file.write_at(place, b"\xff")
    assert file.next_data(FILE_BYTES) is None
    due = min((place for place in places if place >= begin), default=None)
    found = file.next_data(begin)
    if due is None:
        assert found in (None, begin)
    else:
        assert found is not None
        assert begin <= found <= due < found + WINDOW
    file.close()
    path.unlink()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EACCES])
def test_a_directory_that_cannot_be_opened_is_no_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A sync that failed would fail the store."""

    def fails(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fails)
    with pytest.raises(NotOpened, match=re.escape(os.strerror(number))):
        FILES.sync_dir(tmp_path)
