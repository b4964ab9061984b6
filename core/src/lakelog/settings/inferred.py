"""Values that the files of a store tell; the weakest source, asked only for what is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from lakelog.format.layout import (
    BATCHCONSUMEQUEUE_DIR,
    COMMITLOG_DIR,
    CONSUMEQUEUE_DIR,
    CONSUMEQUEUE_EXT_DIR,
    INDEX_DIR,
)
from lakelog.settings.catalog import Catalog
from lakelog.settings.effective import INFERRED
from lakelog.settings.given import CORE, Given, Layer
from lakelog.settings.infer import (
    Listing,
    file_size,
    index_sizes,
    most_common,
    queue_file_entries,
)

Chosen: TypeAlias = Mapping[tuple[str, str], Given]
"""What stronger sources gave, by section and key."""

Look: TypeAlias = Callable[[Path, Chosen], Iterator[Given]]
"""Finds what some files of a store directory tell."""

SMALLEST_SEGMENT_BYTES: Final = 4096
"""The smallest that settings accept; a file below it was cut short."""
QUEUES_ASKED: Final = 8
"""How many queues are looked at; they all have one size, unless some are damaged."""


def from_files(path: Path, catalog: Catalog, chosen: Chosen) -> Layer:
    """Sizes for the keys that are known and not chosen yet."""
    return Layer(
        tuple(
            given
            for (section, keys), look in _LOOKS.items()
            if section in catalog.classes and any((section, key) not in chosen for key in keys)
            for given in look(path, chosen)
            if catalog.knows(given) and (section, given.key) not in chosen
        )
    )


def _segments(path: Path, chosen: Chosen) -> Iterator[Given]:
    directory = _commitlog(path, chosen)
    found = file_size(_listing(directory))
    if found is not None and found[0] >= SMALLEST_SEGMENT_BYTES:
        yield _given(CORE, "segment_size_bytes", found[0], directory / found[1], path)


def _queues(path: Path, _: Chosen) -> Iterator[Given]:
    found = most_common(map(_queue, _queues_in(path / CONSUMEQUEUE_DIR)))
    if found is not None:
        yield _given("consume-queue", "file_entries", found[0], Path(found[1]), path)


def _units_apart(folder: str, key: str) -> Look:
    """Files of other units beside the queues: their length alone, where all are whole."""

    def look(path: Path, _: Chosen) -> Iterator[Given]:
        found = most_common(map(_length, _queues_in(path / folder)))
        if found is not None:
            yield _given("consume-queue", key, found[0], Path(found[1]), path)

    return look


def _index(path: Path, _: Chosen) -> Iterator[Given]:
    for name, length in sorted(_listing(path / INDEX_DIR)):
        sizes = index_sizes(length)
        if sizes is not None:
            yield _given("hash-index", "slots", sizes[0], path / INDEX_DIR / name, path)
            yield _given("hash-index", "entries", sizes[1], path / INDEX_DIR / name, path)
            return


_LOOKS: Final[Mapping[tuple[str, tuple[str, ...]], Look]] = {
    (CORE, ("segment_size_bytes",)): _segments,
    ("consume-queue", ("file_entries",)): _queues,
    ("consume-queue", ("ext_file_size_bytes",)): _units_apart(
        CONSUMEQUEUE_EXT_DIR, "ext_file_size_bytes"
    ),
    ("consume-queue", ("batch_file_size_bytes",)): _units_apart(
        BATCHCONSUMEQUEUE_DIR, "batch_file_size_bytes"
    ),
    ("hash-index", ("slots", "entries")): _index,
}


def _commitlog(path: Path, chosen: Chosen) -> Path:
    given = chosen.get((CORE, "commitlog_path"))
    value = given.value if given else None
    return path / (value if value and isinstance(value, str | Path) else COMMITLOG_DIR)


def _queue(queue: Path) -> tuple[int, str] | None:
    found = queue_file_entries(_listing(queue))
    return found and (found[0], str(queue / found[1]))


def _length(queue: Path) -> tuple[int, str] | None:
    found = file_size(_listing(queue))
    return found and (found[0], str(queue / found[1]))


def _given(section: str, key: str, value: int, file: Path, path: Path) -> Given:
    shown = file.relative_to(path) if file.is_relative_to(path) else file
    return Given(section, key, value, f"{INFERRED} {shown}")


def _listing(directory: Path) -> Listing:
    """Names and lengths of the files in a directory; nothing if it is not there.

    A living owner may delete the oldest of them meanwhile, which says nothing of the others.
    """
    found = []
    for entry in _entries(directory):
        try:
            if entry.is_file(follow_symlinks=False):  # a link is no file of a store
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
    """Folders of queues, below those of topics; the first few."""
    every = (Path(queue) for topic in _entries(directory) for queue in _entries(Path(topic)))
    return islice(every, QUEUES_ASKED)
