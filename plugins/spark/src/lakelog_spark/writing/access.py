"""Opens a store for the appends of one job at a time; other processes may have the store open, too.

Jobs of several drivers wait for each other: each first updates the journals of stopped jobs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Final

import lakelog
from lakelog.errors import LakelogError, NotAStore
from lakelog.files.filesystem import File, FileSystem, RealFileSystem
from lakelog.format.layout import OWN_DIR
from lakelog_spark.writing.errors import NoSuchStore
from lakelog_spark.writing.handover import Handover
from lakelog_spark.writing.options import checked_job
from lakelog_spark.writing.staging import folder_of

LOCK_FILE: Final = "lock"
LONGEST_WAIT_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 0.05
_FLOCK: Final = Struct("hhqqi4x")
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""
_WHOLE: Final = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def open_to_append(
    path: Path,
    settings: str | None = None,
    *,
    create: bool = False,
    files: FileSystem | None = None,
) -> lakelog.Store:
    """Open a store to append to it; other processes may have it open, too.

    :param settings: path of a settings file, besides the store's own
    :param create: whether to create a missing store

    Raises :class:`.NoSuchStore` if the store is missing and ``create`` is false, and
    :class:`~lakelog.errors.StoreLocked` if its owner admits no other process, such as RocketMQ.
    """
    if not create:
        try:
            lakelog.open(path, mode="read", settings=settings, files=files).close()
        except NotAStore as error:
            raise (error if _is_other(path) else NoSuchStore(path)) from None
    return lakelog.open(path, settings=settings, files=files)


def _is_other(path: Path) -> bool:
    """Whether the path exists and is not an empty folder."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


@contextmanager
def handing_over(
    path: Path, settings: str | None = None, *, wait_seconds: float = LONGEST_WAIT_SECONDS
) -> Iterator[lakelog.Store]:
    """Open the store at ``path`` exclusively for one job; wait for other jobs.

    Raises the errors of :func:`open_to_append`, and :class:`~lakelog.errors.LakelogError` if
    another job takes longer than ``wait_seconds``.
    """
    with (
        _only_one(RealFileSystem.of_store(path), path, wait_seconds),
        open_to_append(path, settings) as store,
    ):
        yield store


@contextmanager
def _only_one(files: FileSystem, path: Path, wait_seconds: float) -> Iterator[None]:
    folder = folder_of(path, "any").parent
    if not (path / OWN_DIR).is_dir():  # not a store of lakelog: opening raises
        yield
        return
    files.make_dir(folder)
    file = files.open(folder / LOCK_FILE, write=True, create=True)
    try:
        _lock(file, folder, time.monotonic() + wait_seconds)
        yield
    finally:
        file.close()


def _lock(file: File, folder: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, _WHOLE)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        else:
            return
        if time.monotonic() > deadline:
            raise LakelogError(
                f"{folder / LOCK_FILE}: another job is still appending to this store; "
                "check that job, and try again"
            )
        time.sleep(_LOOK_SECONDS)


def finish_write(store: str | os.PathLike[str], job_id: str, *, settings: str | None = None) -> int:
    """Append the missing rows of a write that was stopped while appending.

    Needs no Spark. Nothing is appended twice.

    :returns: the number of rows appended

    Raises :class:`~lakelog_spark.writing.errors.StagingLost` if there are no such rows.
    """
    path = Path(store).absolute()
    with handing_over(path, settings) as opened:
        return Handover(RealFileSystem.of_store(path), opened, checked_job(job_id)).run()
