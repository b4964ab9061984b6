"""Sizes told by the files that are there: pure functions of names and lengths.

A file's name is the offset of its first byte, so that the names alone tell the size too, where
files were cut short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from lakelog.format.layout import is_segment_name

Listing: TypeAlias = Sequence[tuple[str, int]]
"""Names and lengths of files in one directory, in any order."""

QUEUE_ENTRY_BYTES: Final = 20
INDEX_HEADER_BYTES: Final = 40
INDEX_SLOT_BYTES: Final = 4
INDEX_ENTRY_BYTES: Final = 20
ENTRIES_PER_SLOT: Final = 4
"""RocketMQ's default proportion, and the only one that a file's length can tell."""


def file_size(listing: Listing) -> tuple[int, str] | None:
    """The size of the files of a log, and the name of the file that tells it.

    Two names are one size apart, unless a file between them is missing, when equal lengths
    tell it. A single file tells it by its length, if its name does not contradict.
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


def queue_file_entries(listing: Listing) -> tuple[int, str] | None:
    """How many entries a consume queue's files have, and which file tells it."""
    found = file_size(listing)
    if found is None or found[0] % QUEUE_ENTRY_BYTES:
        return None
    return found[0] // QUEUE_ENTRY_BYTES, found[1]


def index_sizes(length: int) -> tuple[int, int] | None:
    """Slots and entries of an index file with ``length`` bytes, if its proportion is usual.

    >>> index_sizes(8440)
    (100, 400)
    """
    per_slot = INDEX_SLOT_BYTES + ENTRIES_PER_SLOT * INDEX_ENTRY_BYTES
    slots, rest = divmod(length - INDEX_HEADER_BYTES, per_slot)
    return (slots, ENTRIES_PER_SLOT * slots) if slots > 0 and not rest else None


def most_common(found: Iterable[tuple[int, str] | None]) -> tuple[int, str] | None:
    """The number that most files tell, with the first of those files."""
    first: dict[int, str] = {}
    votes: dict[int, int] = {}
    for number, name in filter(None, found):
        first.setdefault(number, name)
        votes[number] = votes.get(number, 0) + 1
    winner = max(votes, key=votes.__getitem__, default=None)
    return None if winner is None else (winner, first[winner])
