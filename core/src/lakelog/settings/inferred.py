"""Values inferred from a store's files: the weakest source, for keys that no other source sets.

The name of a file is the offset of its first byte, so the names alone determine the size of a
segment even if files were truncated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

from lakelog.settings.catalog import CORE, Catalog, Given
from lakelog.settings.effective import INFERRED
from lakelog_format.fields.layout import COMMITLOG_DIR, is_segment_name
from lakelog_interfaces.strategies.kinds import Infer

Listing: TypeAlias = Sequence[tuple[str, int]]
"""Names and lengths of files in one directory, in any order."""
Chosen: TypeAlias = Mapping[str, dict[str, Given]]
"""Values of stronger sources, by section and key; has an entry for every section."""

SMALLEST_SEGMENT_BYTES: Final = 4096
"""The smallest valid setting; a smaller file was truncated."""


def from_files(path: Path, catalog: Catalog, chosen: Chosen) -> Iterator[Given]:
    """Yield the inferred values of existing keys; the caller uses them for keys not set yet."""
    looks: dict[str, Infer] = {CORE: partial(_segments, chosen), **catalog.inferring}
    for section, infer in looks.items():
        for key, value, file in infer(path):
            shown = file.relative_to(path) if file.is_relative_to(path) else file
            given = Given(section, key, value, f"{INFERRED} {shown}")
            if catalog.knows(given):
                yield given


def _segments(chosen: Chosen, path: Path) -> Iterator[tuple[str, int, Path]]:
    given = chosen[CORE].get("commitlog_path")
    value = given.value if given else None
    directory = path / (value if value and isinstance(value, str | Path) else COMMITLOG_DIR)
    found = file_size(listing(directory))
    if found is not None and found[0] >= SMALLEST_SEGMENT_BYTES:
        yield "segment_size_bytes", found[0], directory / found[1]


def file_size(files_found: Listing) -> tuple[int, str] | None:
    """The size of a log's files, and the name of the file that determines it.

    Adjacent names are one size apart, unless a file between them is missing; then equal lengths
    decide. The length of a single file decides if its name does not contradict it.
    """
    files = sorted(
        (int(name), length, name) for name, length in files_found if is_segment_name(name)
    )
    distances = [after[0] - before[0] for before, after in pairwise(files)]
    whole = [(length, name) for _, length, name in files if length]
    alike = len(whole) > 1 and len({length for length, _ in whole}) == 1
    if whole and (alike or len(files) == 1) and not any(at % whole[0][0] for at, _, _ in files):
        return whole[0]
    if not distances:
        return None
    size = min(distances)
    return size, next((name for length, name in whole if length == size), files[0][2])


def listing(directory: Path) -> Listing:
    """Names and lengths of the files in a directory; empty if it does not exist.

    A running owner may delete the oldest files meanwhile; those are skipped.
    """
    found = []
    for entry in entries(directory):
        try:
            if entry.is_file(follow_symlinks=False):  # symbolic links are not files of a store
                found.append((entry.name, entry.stat().st_size))
        except OSError:
            continue
    return found


def entries(directory: Path) -> list[os.DirEntry[str]]:
    """The entries of a directory; empty if it cannot be read."""
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []
