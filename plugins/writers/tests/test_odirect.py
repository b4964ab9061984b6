"""O_DIRECT is on, or opening fails; buffers are reused, but never while views of them exist."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lakelog
from lakelog.errors import SettingsError, StoreError
from lakelog.files.filesystem import Descriptor, File, RealFile, RealFileSystem
from lakelog_writers import direct, plugin
from lakelog_writers.buffers import BufferPool

pytestmark = pytest.mark.disk


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    """A file of two blocks."""
    file = RealFileSystem().open(tmp_path / "file", write=True, create=True)
    file.allocate(8192)
    yield file
    file.close()


def test_it_stays_on(file: File) -> None:
    direct.switch_on(file, 4096)
    assert fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_DIRECT
    with pytest.raises(OSError, match="Invalid argument"):
        file.write_at(1, b"odd")


def test_a_file_system_that_refuses() -> None:
    file = RealFileSystem().open(Path("/proc/self/comm"), write=True)
    with pytest.raises(OSError, match="refuses O_DIRECT") as caught:
        direct.switch_on(file, 4096)
    assert "/proc/self/comm" in str(caught.value)
    file.close()


def test_without_statx_the_kind_of_file_system_tells(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "alignment_bytes", lambda _fd: None)
    direct.switch_on(file, 4096)
    descriptor = os.memfd_create("lakelog")
    place = Path(f"/proc/self/fd/{descriptor}")
    memory = RealFile.opened(place, None, Descriptor.open, place, os.O_RDWR)
    with pytest.raises(OSError, match="takes O_DIRECT, and buffers all the same"):
        direct.switch_on(memory, 4096)
    memory.close()
    os.close(descriptor)


@pytest.mark.parametrize(
    ("needed", "said"), [(0, "has no direct access"), (8192, "block_bytes to 8192")]
)
def test_what_the_file_system_says_counts(
    file: File, monkeypatch: pytest.MonkeyPatch, needed: int, said: str
) -> None:
    monkeypatch.setattr(direct, "alignment_bytes", lambda _fd: needed)
    with pytest.raises(OSError, match=said):
        direct.switch_on(file, 4096)


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder on a file system in memory."""
    place = Path("/dev/shm")
    if not place.is_dir():
        pytest.skip("there is no /dev/shm")
    folder = place / f"lakelog-writers-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def test_a_first_open_where_it_cannot_work_leaves_nothing(in_memory: Path) -> None:
    path = in_memory / "a" / "store"
    given: dict[str, Any] = {"plugins": [plugin], "writer": "direct", "segment_size_bytes": 65536}
    with pytest.raises(StoreError, match="choose another writer") as caught:
        lakelog.open(path, flush="none", **given)
    assert str(caught.value).startswith(str(in_memory))
    assert "check permissions" not in str(caught.value)
    assert list(in_memory.iterdir()) == []


def test_a_place_is_tried_without_leaving_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct.check_directory(tmp_path / "not" / "there", 4096)
    monkeypatch.setattr(direct, "alignment_bytes", lambda _fd: 8192)
    with pytest.raises(OSError, match="block_bytes to 8192"):
        direct.check_directory(tmp_path / "not" / "there", 4096)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [1, 0, -1])
def test_a_pool_that_is_too_small_says_why(size: int, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"pool_size.*2 or more.*the next segment needs"):
        lakelog.open(tmp_path / "s", plugins=[plugin], writer="staged", staged={"pool_size": size})
    assert list(tmp_path.iterdir()) == []


# --- buffers are reused, but never while views of them exist ---


def test_a_buffer_is_used_again_once_nobody_looks_at_it() -> None:
    pool = BufferPool(4096, limit=1)
    taken = pool.take(0)
    buffer, part = taken.buffer, taken.view[10:20]
    buffer.memory[10:20], buffer.used_bytes = b"0123456789", 20
    del taken
    with pytest.raises(OSError, match="all 1 buffers of 4096 bytes"):
        pool.take(0.01)
    assert bytes(part) == b"0123456789"
    del part
    again = pool.take(0)
    assert again.buffer is buffer
    assert bytes(again.view) == bytes(4096)


def test_arrays_over_a_view_keep_it_too() -> None:
    pool = BufferPool(4096, limit=1)
    array = np.frombuffer(pool.take(0).view[4:8], np.uint8)
    with pytest.raises(OSError, match="waited"):
        pool.take(0.01)
    del array
    pool.take(0)


def test_memory_that_may_not_be_locked_is_an_error() -> None:
    """In a separate process, without privileges and without lockable memory."""
    code = """
import os, resource
from lakelog_writers.buffers import BufferPool
BufferPool(4096, limit=2, lock=True).fill()
resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
if os.geteuid() == 0:
    os.setuid(65534)
try:
    BufferPool(4096, limit=2, lock=True).fill()
except OSError as error:
    print("refused:", error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "mlock of 4096 bytes" in run.stdout
    assert "RLIMIT_MEMLOCK" in run.stdout
