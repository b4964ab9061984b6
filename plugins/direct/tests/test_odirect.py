"""O_DIRECT is on, or opening is an error; nothing falls back in silence."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.files import File, RealFileSystem
from lakelog_direct import odirect


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    """A file of two blocks."""
    file = RealFileSystem().open(tmp_path / "file", write=True, create=True)
    file.allocate(8192)
    yield file
    file.close()


def test_it_stays_on(file: File) -> None:
    odirect.switch_on(file, 4096)
    assert fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_DIRECT
    with pytest.raises(OSError, match="Invalid argument"):
        file.write_at(1, b"odd")


def test_a_file_system_that_refuses() -> None:
    file = RealFileSystem().open(Path("/proc/self/comm"), write=True)
    with pytest.raises(OSError, match="refuses O_DIRECT") as caught:
        odirect.switch_on(file, 4096)
    assert "/proc/self/comm" in str(caught.value)
    file.close()


def test_without_statx_the_kind_of_file_system_tells(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(odirect, "alignment_bytes", lambda _fd: None)
    odirect.switch_on(file, 4096)
    descriptor = os.memfd_create("lakelog")
    memory = RealFileSystem().open(Path(f"/proc/self/fd/{descriptor}"), write=True)
    with pytest.raises(OSError, match="takes O_DIRECT, and buffers all the same"):
        odirect.switch_on(memory, 4096)
    memory.close()
    os.close(descriptor)


@pytest.mark.parametrize(
    ("needed", "said"), [(0, "has no direct access"), (8192, "block_bytes to 8192")]
)
def test_what_the_file_system_says_counts(
    file: File, monkeypatch: pytest.MonkeyPatch, needed: int, said: str
) -> None:
    monkeypatch.setattr(odirect, "alignment_bytes", lambda _fd: needed)
    with pytest.raises(OSError, match=said):
        odirect.switch_on(file, 4096)
