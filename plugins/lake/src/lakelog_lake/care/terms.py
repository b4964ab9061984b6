"""What compaction and expiry are asked for and say, whatever kind a table is of."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import attrs

SAFE_SECONDS: Final = 86_400
"""They are left alone for a day: somebody may be about to name them."""


def remove(path: Path) -> bool:
    """Whether this call removed the file."""
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
    """:ivar removed: small files; :ivar made: files that hold their rows now."""

    removed: int = 0
    made: int = 0
    rows: int | None = None


@attrs.frozen
class Expired:
    """:ivar versions: of the table that can be read no more; :ivar files: that are gone."""

    versions: int = 0
    files: int = 0


@attrs.frozen
class RetentionTerms:
    """What stays.

    :ivar seconds: a version stays for so long after another one took its place
    :ivar keep: so many of the newest versions stay in any case
    """

    seconds: int
    keep: int = 1

    @property
    def cutoff(self) -> float:
        """In seconds since 1970; what was replaced before goes."""
        return time.time() - self.seconds

    @property
    def orphans_cutoff(self) -> float:
        """What no version names and was written before goes."""
        return time.time() - max(self.seconds, SAFE_SECONDS)
