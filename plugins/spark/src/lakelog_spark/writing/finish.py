"""Jobs on a store: how it is opened for them, and what is done about one that was stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import lakelog
from lakelog.errors import NotAStore
from lakelog.files import FileSystem, RealFileSystem
from lakelog_spark.writing.errors import NoSuchStore
from lakelog_spark.writing.handover import Handover
from lakelog_spark.writing.options import checked_job

FLUSH: Final = "inline"
"""Each put is durable when it returns, whatever the store's own settings say."""


def open_owned(
    path: Path,
    settings: str | None = None,
    *,
    create: bool = False,
    files: FileSystem | None = None,
) -> lakelog.Store:
    """Open a store to append to it.

    Raises :class:`.NoSuchStore` where none is and none is to be made,
    :class:`~lakelog.errors.StoreLocked` where somebody owns it.
    """
    if not create:
        try:
            lakelog.open(path, mode="read", settings=settings, files=files).close()
        except NotAStore as error:
            raise (error if _is_other(path) else NoSuchStore(path)) from None
    return lakelog.open(path, settings=settings, files=files, flush=FLUSH)


def _is_other(path: Path) -> bool:
    """Whether something is there that no store can be made of."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def finish_write(store: str | os.PathLike[str], job_id: str, *, settings: str | None = None) -> int:
    """Append what is missing of a write that was stopped while its rows were appended.

    Needs no Spark. Nothing is appended twice.

    :returns: how many rows that were

    Raises :class:`~lakelog_spark.writing.errors.StagingLost` where no such rows are there.
    """
    path = Path(store).absolute()
    with open_owned(path, settings) as opened:
        return Handover(RealFileSystem(), opened, checked_job(job_id)).run()
