"""Parameters and results of compaction and expiry, for all kinds of tables."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import attrs

SAFE_SECONDS: Final = 86_400
"""Unreferenced files are kept for a day: a writer may be about to reference them."""


def remove(path: Path) -> bool:
    """Remove a file; return whether this call removed it."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def remove_orphans(folder: Path, pattern: str, named: set[Path], before: float) -> int:
    """Remove unreferenced old files below ``folder``; return their number.

    :param pattern: glob pattern of their names
    :param named: the referenced files, which stay
    :param before: only files last written before this time, in seconds since 1970
    """
    count, named = 0, {each.resolve() for each in named}
    for path in folder.rglob(pattern):
        try:
            old = path.stat().st_mtime < before
        except FileNotFoundError:
            continue
        if old and path.resolve() not in named and path.is_file():
            count += remove(path)
    return count


@attrs.frozen
class Compacted:
    """The result of a compaction.

    :ivar removed: number of small files that were merged
    :ivar made: number of new files with their rows
    :ivar rows: number of these rows; ``None`` if not known
    """

    removed: int = 0
    made: int = 0
    rows: int | None = None


@attrs.frozen
class Expired:
    """The result of an expiry.

    :ivar versions: number of removed versions of the table
    :ivar files: number of removed files
    """

    versions: int = 0
    files: int = 0


@attrs.frozen
class RetentionTerms:
    """The versions to keep.

    :ivar seconds: time for which a version stays after it was replaced
    :ivar keep: number of newest versions that stay in any case
    """

    seconds: int
    keep: int = 1

    @property
    def cutoff(self) -> float:
        """Versions replaced before this time, in seconds since 1970, are removed."""
        return time.time() - self.seconds

    @property
    def orphans_cutoff(self) -> float:
        """Unreferenced files written before this time, in seconds since 1970, are removed."""
        return time.time() - max(self.seconds, SAFE_SECONDS)
