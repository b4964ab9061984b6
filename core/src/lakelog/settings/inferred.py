"""Values inferred from a store's files: the weakest source, for keys that no other source sets.

A file's name is the offset of its first byte, so the names alone determine the size even if files
were truncated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, TypeAlias

from lakelog.format.layout import (
    BATCHCONSUMEQUEUE_DIR,
    COMMITLOG_DIR,
    CONSUMEQUEUE_DIR,
    CONSUMEQUEUE_EXT_DIR,
    INDEX_DIR,
    is_segment_name,
)
from lakelog.settings.catalog import CORE, Catalog, Given, Layer
from lakelog.settings.effective import INFERRED

Listing: TypeAlias = Sequence[tuple[str, int]]
"""Names and lengths of files in one directory, in any order."""
Chosen: TypeAlias = Mapping[tuple[str, str], Given]
"""Values of stronger sources, by section and key."""
Found: TypeAlias = Iterator[tuple[str, int, Path]]
"""Keys and values, each with the file that determines it."""
Look: TypeAlias = tuple[str, tuple[str, ...], Callable[[Path, Chosen], Found]]
"""A section, some of its keys, and the function that infers their values."""

QUEUE_ENTRY_BYTES: Final = 20
INDEX_HEADER_BYTES: Final = 40
INDEX_SLOT_BYTES: Final = 4
INDEX_ENTRY_BYTES: Final = 20
ENTRIES_PER_SLOT: Final = 4
"""RocketMQ's default ratio; a file's length determines the sizes only for this one."""
SMALLEST_SEGMENT_BYTES: Final = 4096
"""The smallest valid setting; a smaller file was truncated."""
QUEUES_ASKED: Final = 8
"""Number of queues to examine; all have one size unless some are damaged."""


def from_files(path: Path, catalog: Catalog, chosen: Chosen) -> Layer:
    """Sizes for keys that are known and not set yet."""
    givens = []
    for section, keys, look in _LOOKS:
        if section in catalog.classes and any((section, key) not in chosen for key in keys):
            for key, value, file in look(path, chosen):
                shown = file.relative_to(path) if file.is_relative_to(path) else file
                given = Given(section, key, value, f"{INFERRED} {shown}")
                if catalog.knows(given) and (section, key) not in chosen:
                    givens.append(given)
    return Layer(tuple(givens))


# --- from names and lengths ---


def file_size(listing: Listing) -> tuple[int, str] | None:
    """The size of a log's files, and the name of the file that determines it.

    Adjacent names are one size apart, unless a file between them is missing; then equal lengths
    decide. The length of a single file decides if its name does not contradict it.
    """
    files = sorted((int(name), length, name) for name, length in listing if is_segment_name(name))
    distances = [after[0] - before[0] for before, after in pairwise(files)]
    whole = [(length, name) for _, length, name in files if length]
    alike = len(whole) > 1 and len({length for length, _ in whole}) == 1
    if whole and (alike or len(files) == 1) and not any(at % whole[0][0] for at, _, _ in files):
        return whole[0]
    if not distances:
        return None
    size = min(distances)
    return size, next((name for length, name in whole if length == size), files[0][2])


def index_sizes(length: int) -> tuple[int, int] | None:
    """Slots and entries of an index file of ``length`` bytes, if their ratio is the usual one.

    >>> index_sizes(8440)
    (100, 400)
    """
    per_slot = INDEX_SLOT_BYTES + ENTRIES_PER_SLOT * INDEX_ENTRY_BYTES
    slots, rest = divmod(length - INDEX_HEADER_BYTES, per_slot)
    return (slots, ENTRIES_PER_SLOT * slots) if slots > 0 and not rest else None


def most_common(found: Iterable[tuple[int, Path] | None]) -> tuple[int, Path] | None:
    """The number found in most files, with the first of those files."""
    files: dict[int, list[Path]] = {}
    for number, file in filter(None, found):
        files.setdefault(number, []).append(file)
    winner = max(files, key=lambda number: len(files[number]), default=None)
    return None if winner is None else (winner, files[winner][0])


# --- from folders ---


def _segments(path: Path, chosen: Chosen) -> Found:
    given = chosen.get((CORE, "commitlog_path"))
    value = given.value if given else None
    directory = path / (value if value and isinstance(value, str | Path) else COMMITLOG_DIR)
    found = file_size(_listing(directory))
    if found is not None and found[0] >= SMALLEST_SEGMENT_BYTES:
        yield "segment_size_bytes", found[0], directory / found[1]


def _queues(folder: str, key: str, unit_bytes: int, path: Path, _: Chosen) -> Found:
    """The size of the files of most queues, in units."""
    found = most_common(_queue_size(queue, unit_bytes) for queue in _queues_in(path / folder))
    if found is not None:
        yield key, *found


def _queue_size(queue: Path, unit_bytes: int) -> tuple[int, Path] | None:
    found = file_size(_listing(queue))
    if found is None or found[0] % unit_bytes:
        return None
    return found[0] // unit_bytes, queue / found[1]


def _index(path: Path, _: Chosen) -> Found:
    for name, length in sorted(_listing(path / INDEX_DIR)):
        sizes = index_sizes(length)
        if sizes is not None:
            for key, value in zip(("slots", "entries"), sizes, strict=True):
                yield key, value, path / INDEX_DIR / name
            return


def _of_queues(folder: str, key: str, unit_bytes: int = 1) -> Look:
    return "consume-queue", (key,), partial(_queues, folder, key, unit_bytes)


_LOOKS: Final[Sequence[Look]] = (
    (CORE, ("segment_size_bytes",), _segments),
    _of_queues(CONSUMEQUEUE_DIR, "file_entries", QUEUE_ENTRY_BYTES),
    _of_queues(CONSUMEQUEUE_EXT_DIR, "ext_file_size_bytes"),
    _of_queues(BATCHCONSUMEQUEUE_DIR, "batch_file_size_bytes"),
    ("hash-index", ("slots", "entries"), _index),
)


def _listing(directory: Path) -> Listing:
    """Names and lengths of the files in a directory; empty if it does not exist.

    A running owner may delete the oldest files meanwhile; those are skipped.
    """
    found = []
    for entry in _entries(directory):
        try:
            if entry.is_file(follow_symlinks=False):  # symbolic links are not files of a store
                found.append((entry.name, entry.stat().st_size))
        except OSError:
            continue
    return found


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _queues_in(directory: Path) -> Iterator[Path]:
    """The first few folders of queues, which are inside those of topics."""
    every = (Path(queue) for topic in _entries(directory) for queue in _entries(Path(topic)))
    return islice(every, QUEUES_ASKED)
