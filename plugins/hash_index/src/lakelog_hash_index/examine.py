"""Checks the consistency of an index file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog.runtime.lazy import np
from lakelog_hash_index.chains import follow, link
from lakelog_hash_index.indexfile import IndexFile
from lakelog_hash_index.shape import Header

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHUNK: Final = 1 << 18
_AT_END_OFFSET: Final = 24
_AT_BEGIN_OFFSET: Final = 16
_AT_USED_SLOTS: Final = 32


@attrs.frozen
class IndexProblem:
    """An error in an index file, with its byte position."""

    path: Path
    position: int
    what: str

    def __str__(self) -> str:
        """One line of text."""
        return f"{self.path}: at byte {self.position}: {self.what}"


def outline(file: IndexFile) -> Iterator[IndexProblem]:
    """Check the header, and the first and last entry."""
    header = file.header()
    wrong = [IndexProblem(file.path, 0, what) for what in header.problems(file.shape)]
    if wrong or header.is_empty:
        yield from wrong
        return
    for number, offset, at in (
        (1, header.begin_offset, _AT_BEGIN_OFFSET),
        (header.count - 1, header.end_offset, _AT_END_OFFSET),
    ):
        if (found := file.offset(number)) != offset:
            what = f"the header says physical offset {offset}, entry {number} says {found}"
            yield IndexProblem(file.path, at, what)


def examine(file: IndexFile, *, growing: bool = False) -> Iterator[IndexProblem]:
    """Check everything: each entry must be linked exactly once, from its own slot.

    :param growing: whether another process may be writing: then entries that the header does not
        count yet, and the header's last fields, are not errors
    """
    header = file.header()
    wrong = [IndexProblem(file.path, 0, what) for what in header.problems(file.shape)]
    yield from wrong or () if growing else outline(file)
    if wrong:
        return
    heads = np.zeros(file.shape.slots, np.int32)
    yield from _entries(file, header, heads)
    yield from _slots(file, header.count, heads, growing)
    used = int(np.count_nonzero(heads))
    if not growing and used != header.used_slots:
        what = f"hashSlotCount is {header.used_slots}, but {used} slots have entries"
        yield IndexProblem(file.path, _AT_USED_SLOTS, what)


def _entries(file: IndexFile, header: Header, heads: NDArray[np.int32]) -> Iterator[IndexProblem]:
    """Yield the first error of each chunk; sets ``heads`` to the expected slots."""
    entries, last = file.entries(), header.begin_offset
    for first in range(1, header.count, _CHUNK):
        some = entries[first : min(first + _CHUNK, header.count)]
        sound = follow(heads, some, first, last)
        if sound is not None:
            last = sound[1]
            continue
        hashes = some["hash"].astype(np.int32)
        links = link(heads, np.maximum(hashes, 0) % file.shape.slots, first)
        heads[links.slots] = links.heads
        offsets = some["offset"].astype(np.int64)
        before = np.append(last, offsets[:-1])  # a difference could overflow
        for broken, what, within in (
            (hashes < 0, "a negative hash", 0),
            (offsets < before, "an offset less than that of the entry before", 4),
            (some["seconds"] < 0, "a negative time", 12),
            (some["previous"] != links.previous, "not the entry before it in its slot", 16),
        ):
            if broken.any():
                number = first + int(broken.argmax())
                at = file.shape.entry_at(number) + within
                yield IndexProblem(file.path, at, f"entry {number} has {what}")
        last = int(offsets[-1])


def _slots(
    file: IndexFile, count: int, heads: NDArray[np.int32], growing: bool
) -> Iterator[IndexProblem]:
    slots = file.slots().astype(np.int32)
    if growing:
        _pass_over_new(file.entries()["previous"], slots, count)
    for slot in np.flatnonzero(slots != heads)[:1].tolist():
        what = f"slot {slot} says {slots[slot]}, but its newest entry is {heads[slot]}"
        yield IndexProblem(file.path, file.shape.slot_at(slot), what)


def _pass_over_new(previous: NDArray[Any], slots: NDArray[np.int32], count: int) -> None:
    """Replace entries that are not counted yet by the newest counted one of their slot."""
    while (new := np.flatnonzero((slots >= count) & (slots < len(previous)))).size:
        back = previous[slots[new]].astype(np.int32)
        slots[new] = np.where(back < slots[new], back, -1)
