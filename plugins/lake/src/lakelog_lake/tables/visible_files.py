"""Which data files of a Parquet table others see: those of its newest version, and no others.

A file is written under a hidden name, which every reader of folders passes over, as it begins with
``.`` and does not end with ``.parquet``. The commit is the manifest; behind it the files get their
names, and those that the version does not name any more, after a compaction, are hidden. Who is
killed between leaves that to the next one, who does it before anything else. A table has read its
newest version again after it renamed, so that of several the last one leaves it as it should be.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakelog_lake.tables.file_facts import hidden

PATTERNS: Final = ("*.parquet", ".*.parquet.hidden")
"""Of data files that are seen, and of hidden ones."""


def shown(paths: Iterable[Path]) -> bool:
    """Give files their names; whether any of them was hidden."""
    found = [_renamed(hidden(path), path) for path in paths if not path.exists()]
    return any(found)


def only(seen: Iterable[Path], paths: Iterable[Path]) -> bool:
    """Show ``paths`` and hide all others; whether that changed anything.

    :param seen: what others saw before it was asked which ones they should see: what is committed
        later must not be hidden
    """
    wanted = set(paths)
    gone = [_renamed(path, hidden(path)) for path in seen if path not in wanted]
    return shown(wanted) or any(gone)


def seen_in(folder: Path) -> list[Path]:
    """The data files that others see."""
    return [path for path in folder.glob(PATTERNS[0]) if not path.name.startswith(".")]


def named(path: str) -> str:
    """The name that a hidden file gets."""
    at = Path(path)
    return str(at.with_name(at.name.removeprefix(".").removesuffix(".hidden")))


def found(path: Path) -> Path:
    """Where a file is now: under its name, or its hidden one."""
    return hidden(path) if not path.exists() and hidden(path).exists() else path


def _renamed(before: Path, after: Path) -> bool:
    """Whether it was this call; somebody else may be faster."""
    with suppress(FileNotFoundError):
        before.rename(after)
        return True
    return False
