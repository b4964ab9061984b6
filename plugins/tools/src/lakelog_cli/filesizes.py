"""Number and disk space of the files in each part of a store directory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

BLOCK_BYTES: Final = 512
"""The unit of ``st_blocks``, independent of the file system's block size."""
REST: Final = "other"


@attrs.define
class FolderSize:
    """The size of a part of a store directory.

    :ivar length_bytes: total length of its files
    :ivar disk_bytes: their allocated space, less than the length if they have holes
    """

    files: int = 0
    length_bytes: int = 0
    disk_bytes: int = 0

    def add(self, found: os.stat_result) -> None:
        """Add one file."""
        self.files += 1
        self.length_bytes += found.st_size
        self.disk_bytes += found.st_blocks * BLOCK_BYTES


def sizes(parts: Mapping[str, Path], root: Path) -> dict[str, FolderSize]:
    """The size of each part by its name; all other files below ``root`` count as ``other``.

    A file that is deleted meanwhile is skipped.
    """
    found = {name: FolderSize() for name in (*parts, REST)}
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
