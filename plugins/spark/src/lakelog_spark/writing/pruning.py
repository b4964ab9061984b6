"""Removes old files of jobs: journals of finished jobs, and staged rows of abandoned jobs.

The file with the last batch of a streaming query stays, as the query may be restarted at any time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakelog.errors import LakelogError
from lakelog.files.filesystem import FileSystem
from lakelog_spark.writing.journal import LAST_FILE, MANIFEST, Journal, read_journal
from lakelog_spark.writing.staging import folder_of, remove

_DAY_SECONDS: Final = 24 * 3600
DONE_DAYS: Final = 30
"""Days to keep the journal of a finished job; if a user gave its id, it is kept for ever."""
DEAD_DAYS: Final = 7
"""Days to keep the staged rows of a job without a manifest."""


def prune(files: FileSystem, store: Path, now: float | None = None) -> None:
    """Remove old files; the caller must hold the store, see :func:`.access.handing_over`.

    :param now: the present time, in seconds since 1970; by default that of the system
    """
    days = (time.time() if now is None else now) / _DAY_SECONDS
    for folder in list(_folders(store)):
        with suppress(OSError, LakelogError):  # the next call tries again
            _prune(files, folder, days)


def _folders(store: Path) -> Iterator[Path]:
    staging = folder_of(store, "any").parent
    if staging.is_dir():
        yield from (each for each in staging.iterdir() if each.is_dir())


def _prune(files: FileSystem, folder: Path, days: float) -> None:
    age = days - folder.stat().st_mtime / _DAY_SECONDS  # each new name updates the folder's time
    if age < min(DEAD_DAYS, DONE_DAYS):
        return
    names = [name for name, _ in files.list(folder)]
    journal = read_journal(files, folder)
    if (MANIFEST not in names) if journal is None else _is_old(journal, age):
        remove(files, folder, [name for name in names if name != LAST_FILE])


def _is_old(journal: Journal, age: float) -> bool:
    return journal.done and not journal.named and age > DONE_DAYS
