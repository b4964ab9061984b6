"""What jobs leave in the store's folder: notes of those that are done, rows of those that died.

The note of a streaming query stays: it may be started again at any time.
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
"""How long a job is remembered that nobody gave an id; others are for ever."""
DEAD_DAYS: Final = 7
"""How long rows are kept that nobody has handed over."""


def prune(files: FileSystem, store: Path, now: float | None = None) -> None:
    """Remove what nobody can ask for any more; to be called by the owner of the store."""
    days = (time.time() if now is None else now) / _DAY_SECONDS
    for folder in list(_folders(store)):
        with suppress(OSError, LakelogError):  # another time then
            _prune(files, folder, days)


def _folders(store: Path) -> Iterator[Path]:
    staging = folder_of(store, "any").parent
    if staging.is_dir():
        yield from (each for each in staging.iterdir() if each.is_dir())


def _prune(files: FileSystem, folder: Path, days: float) -> None:
    age = days - folder.stat().st_mtime / _DAY_SECONDS  # each new name in a folder moves its time
    if age < min(DEAD_DAYS, DONE_DAYS):
        return
    names = [name for name, _ in files.list(folder)]
    journal = read_journal(files, folder)
    if (MANIFEST not in names) if journal is None else _is_old(journal, age):
        remove(files, folder, [name for name in names if name != LAST_FILE])


def _is_old(journal: Journal, age: float) -> bool:
    return journal.done and not journal.named and age > DONE_DAYS
