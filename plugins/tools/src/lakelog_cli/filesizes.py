"""How many files the parts of a store directory have, and what they take on disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

BLOCK_BYTES: Final = 512
"""``st_blocks`` counts in these, whatever the file system's own blocks are."""
REST: Final = "other"


@attrs.define
class Size:
    """What a part of a store directory takes.

    :ivar length_bytes: lengths of its files together
    :ivar disk_bytes: what is allocated for them; less where files have holes
    """

    files: int = 0
    length_bytes: int = 0
    disk_bytes: int = 0

    def add(self, found: os.stat_result) -> None:
        """Count one file more."""
        self.files += 1
        self.length_bytes += found.st_size
        self.disk_bytes += found.st_blocks * BLOCK_BYTES


def sizes(parts: Mapping[str, Path], root: Path) -> dict[str, Size]:
    """The size of each part by its name, and of what else is below ``root`` under ``other``.

    A file that goes away meanwhile is not counted.
    """
    found = {name: Size() for name in (*parts, REST)}
    folders = {path: name for name, path in parts.items()}
    outside = [path for path in parts.values() if not path.is_relative_to(root)]
    for path in _files([root, *outside]):
        part = next((folders[each] for each in path.parents if each in folders), REST)
        with suppress(FileNotFoundError):
            found[part].add(path.stat())
    return found


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for base, _, names in os.walk(folder):
            yield from (Path(base, name) for name in names)
