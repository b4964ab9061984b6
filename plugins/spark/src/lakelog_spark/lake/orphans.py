"""Files of a table that no version of it names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

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
