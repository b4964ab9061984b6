"""Checks the consistency of a whole index, without the log."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final

from lakelog.files.filesystem import FileSystem, RealFileSystem
from lakelog_hash_index.examine import IndexProblem, examine
from lakelog_hash_index.indexfile import IndexFile
from lakelog_hash_index.names import is_name
from lakelog_hash_index.shape import ENTRY, HEADER, SLOT, IndexShape

ENTRIES_PER_SLOT: Final = 4
"""RocketMQ's default ratio, by which a file's length determines its shape."""


def verify(
    path: Path,
    slots: int | None = None,
    entries: int | None = None,
    files: FileSystem | None = None,
) -> list[IndexProblem]:
    """The errors of the index files in the folder ``path``; no process may be writing to them.

    Checks counts, chains (every entry is linked exactly once, from its own slot), slots, and the
    order of the files. Missing keys cannot be found without the log.

    :param slots: as in the settings; by default from each file's length
    :param entries: the same
    """
    files = files or RealFileSystem()
    found: list[IndexProblem] = []
    sound: list[IndexFile] = []
    for name, length in files.list(path):
        shape = IndexShape(slots, entries) if slots and entries else _shape_of(length)
        if not is_name(name):
            found.append(IndexProblem(path / name, 0, "it is not an index file"))
        elif shape is None or length != shape.length:
            found.append(IndexProblem(path / name, length, f"{length} bytes are no valid length"))
        else:
            file = IndexFile(files, path / name, shape)
            problems = list(examine(file))
            found += problems
            sound += [] if problems else [file]
    return found + _misplaced(sound)


def _shape_of(length: int) -> IndexShape | None:
    per_slot = SLOT.size + ENTRIES_PER_SLOT * ENTRY.size
    slots, rest = divmod(length - HEADER.size, per_slot)
    return None if rest or slots < 1 else IndexShape(slots, slots * ENTRIES_PER_SLOT)


def _misplaced(files: list[IndexFile]) -> list[IndexProblem]:
    pairs = [(a.header(), b) for a, b in pairwise(files)]
    return [
        IndexProblem(b.path, 0, f"it begins at {b.header().begin_offset}, before {a.end_offset}")
        for a, b in pairs
        if b.header().begin_offset < a.end_offset
    ]
