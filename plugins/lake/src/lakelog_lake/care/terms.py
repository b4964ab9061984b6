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
    """Remove files below ``folder`` that are not ``named`` and were last written before a time."""
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
    """:ivar removed: small files; :ivar made: files with their rows."""

    removed: int = 0
    made: int = 0
    rows: int | None = None


@attrs.frozen
class Expired:
    """:ivar versions: removed versions of the table; :ivar files: removed files."""

    versions: int = 0
    files: int = 0


@attrs.frozen
class RetentionTerms:
    """The versions to keep.

    :ivar seconds: a version stays for so long after it was replaced
    :ivar keep: so many of the newest versions stay in any case
    """

    seconds: int
    keep: int = 1

    @property
    def cutoff(self) -> float:
        """In seconds since 1970; versions replaced before are removed."""
        return time.time() - self.seconds

    @property
    def orphans_cutoff(self) -> float:
        """In seconds since 1970; unreferenced files written before are removed."""
        return time.time() - max(self.seconds, SAFE_SECONDS)
