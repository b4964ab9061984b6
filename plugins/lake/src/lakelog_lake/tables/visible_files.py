"""Keeps exactly the data files of a Parquet table's newest version visible to other readers.

A file is written under a hidden name. Readers of folders ignore it, as it begins with ``.`` and
does not end with ``.parquet``. The manifest is the commit. After the commit the new files get their
visible names, and files that a compaction removed from the table are hidden. After a kill in
between, the next process does this first. Each process reads the newest version again after it
renamed files, so that the last of several concurrent processes leaves the right names.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakelog_lake.tables.file_facts import hidden

PATTERNS: Final = ("*.parquet", ".*.parquet.hidden")
"""Name patterns of visible and of hidden data files."""


def shown(paths: Iterable[Path]) -> bool:
    """Give files their visible names; return whether any was hidden."""
    found = [_renamed(hidden(path), path) for path in paths if not path.exists()]
    return any(found)


def only(seen: Iterable[Path], paths: Iterable[Path]) -> bool:
    """Show ``paths`` and hide all others; return whether that changed anything.

    :param seen: the files visible before ``paths`` was read, so that later commits are not hidden
    """
    wanted = set(paths)
    gone = [_renamed(path, hidden(path)) for path in seen if path not in wanted]
    return shown(wanted) or any(gone)


def seen_in(folder: Path) -> list[Path]:
    """The visible data files."""
    return [path for path in folder.glob(PATTERNS[0]) if not path.name.startswith(".")]


def named(path: str) -> str:
    """The visible name of a hidden file."""
    at = Path(path)
    return str(at.with_name(at.name.removeprefix(".").removesuffix(".hidden")))


def found(path: Path) -> Path:
    """The present location of a file: its visible or its hidden name."""
    return hidden(path) if not path.exists() and hidden(path).exists() else path


def _renamed(before: Path, after: Path) -> bool:
    """Rename; return whether this call did it, and not another process."""
    with suppress(FileNotFoundError):
        before.rename(after)
        return True
    return False
