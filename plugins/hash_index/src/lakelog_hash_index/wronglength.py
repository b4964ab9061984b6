"""Handles index files of a wrong length, from other settings or truncation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lakelog.errors import CorruptIndex
from lakelog.files.filesystem import FileSystem
from lakelog_hash_index.shape import ENTRY, HEADER, SLOT, Header


def first_wrong(files: FileSystem, wrong: Sequence[CorruptIndex], *, alone: bool) -> Path | None:
    """The oldest file to remove, with all later ones; ``None`` if no length is wrong.

    Raises the first of ``wrong`` if settings may be the cause: no file has the right length
    (``alone``), all have the same one, and it cannot result from truncation alone.
    """
    paths = sorted(Path(str(error.path)) for error in wrong)
    alike = alone and len({path.lstat().st_size for path in paths}) == 1
    if alike and not any(_was_cut(files, path) for path in paths):
        raise wrong[0]
    return paths[0] if paths else None


def _was_cut(files: FileSystem, path: Path) -> bool:
    """Whether no settings make this length, or the counted entries do not fit in it."""
    file = files.open(path)
    try:
        length, head = file.size(), file.read_at(0, HEADER.size)
    finally:
        file.close()
    if len(head) < HEADER.size or (length - HEADER.size) % SLOT.size:
        return True
    least = HEADER.size + SLOT.size + Header.unpack(head).count * ENTRY.size
    return length < least
