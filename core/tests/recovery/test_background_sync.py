"""What a recovery reads is synced while it reads, and a sync that fails then is not forgotten."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import lakelog
from lakelog.errors import StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.layout import ABORT_FILE
from lakelog.log.store_directory import StoreDirectory
from lakelog.recovery.apply import BackgroundSync
from lakelog.settings.model import StoreSettings

SEGMENT = 64 << 10


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    path = tmp_path / "s"
    with lakelog.open(path, segment_size_bytes=SEGMENT, dispatchers=()) as store:
        store.put_batch([lakelog.Message("t", bytes(1000), queue_id=0) for _ in range(200)])
    (path / ABORT_FILE).touch()
    return path


def directory(path: Path, files: RealFileSystem | None = None) -> StoreDirectory:
    return StoreDirectory.of(files or RealFileSystem(), path, StoreSettings())


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        names.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return names


def test_from_the_segment_on_where_the_reading_starts(killed: Path, synced: list[str]) -> None:
    segments = sorted(each.name for each in (killed / "commitlog").iterdir())
    assert len(segments) > 3
    ahead = BackgroundSync(directory(killed), SEGMENT)
    ahead.begin(SEGMENT)
    assert ahead._running is not None
    ahead._running.result()
    ahead.end()
    assert synced == segments[1:]


def test_files_that_are_not_the_systems_are_left_alone(killed: Path, synced: list[str]) -> None:
    class Others(RealFileSystem):
        """As a test has them."""

    ahead = BackgroundSync(directory(killed, Others()), SEGMENT)
    ahead.begin(0)
    ahead.end()
    assert not synced


def test_a_failure_is_the_failure_of_the_recovery(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells of it once: a later sync, of a file opened anew, may hear nothing."""
    real, told = os.fdatasync, list[int]()

    def fdatasync(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().parent.name == "commitlog" and not told:
            told.append(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    with pytest.raises((OSError, StoreError), match="Input/output error"):
        lakelog.open(killed, segment_size_bytes=SEGMENT, dispatchers=())
    assert told
    assert (killed / ABORT_FILE).exists()
