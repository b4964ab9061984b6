"""Infers settings of queues from the lengths of their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from lakelog.format.layout import BATCHCONSUMEQUEUE_DIR, CONSUMEQUEUE_DIR, CONSUMEQUEUE_EXT_DIR
from lakelog.settings.inferred import entries, file_size, listing

UNIT_BYTES: Final = 20
QUEUES_ASKED: Final = 8
"""Number of queues to examine; all have one size unless some are damaged."""


def from_queues(path: Path) -> Iterator[tuple[str, int, Path]]:
    """Keys of ``[consume-queue]`` with their values, each with the file that determines it."""
    for folder, key, unit_bytes in (
        (CONSUMEQUEUE_DIR, "file_entries", UNIT_BYTES),
        (CONSUMEQUEUE_EXT_DIR, "ext_file_size_bytes", 1),
        (BATCHCONSUMEQUEUE_DIR, "batch_file_size_bytes", 1),
    ):
        sizes = (queue_size(queue, unit_bytes) for queue in _queues_in(path / folder))
        found = most_common(sizes)
        if found is not None:
            yield key, *found


def queue_size(queue: Path, unit_bytes: int) -> tuple[int, Path] | None:
    """The size of a queue's files in units, and the file that determines it."""
    found = file_size(listing(queue))
    if found is None or found[0] % unit_bytes:
        return None
    return found[0] // unit_bytes, queue / found[1]


def most_common(found: Iterable[tuple[int, Path] | None]) -> tuple[int, Path] | None:
    """The number found in most files, with the first of those files."""
    files: dict[int, list[Path]] = {}
    for number, file in filter(None, found):
        files.setdefault(number, []).append(file)
    winner = max(files, key=lambda number: len(files[number]), default=None)
    return None if winner is None else (winner, files[winner][0])


def _queues_in(directory: Path) -> Iterator[Path]:
    """The first few folders of queues, which are inside those of topics."""
    every = (Path(queue) for topic in entries(directory) for queue in entries(Path(topic)))
    return islice(every, QUEUES_ASKED)
