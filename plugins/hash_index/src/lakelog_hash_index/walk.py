"""Looks up a key along the chain of one slot, from the newest entry to the oldest.

Entries store whole seconds since the file's first record, rounded down, so a record may appear up
to 999 ms too early. The time window is widened by that; the store, which reads the exact times,
drops the surplus. The first entry of a file counts its seconds from the previous file; its exact
time is in the header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Final

import attrs

from lakelog.errors import CorruptIndex
from lakelog_hash_index.indexfile import IndexFile
from lakelog_hash_index.shape import Header

_ROUNDED_MS: Final = 999


@attrs.frozen
class KeyQuestion:
    """A query: ``key_hash`` as in the index, and an inclusive window of store times in ms."""

    key_hash: int
    begin_ms: int
    end_ms: int

    def takes(self, first_ms: int, last_ms: int) -> bool:
        """Whether any time from ``first_ms`` to ``last_ms`` is in the window."""
        return first_ms <= self.end_ms and last_ms >= self.begin_ms


def newest_first(
    files: Iterable[IndexFile],
    others: Iterable[int],
    wanted: KeyQuestion,
    within: range,
    known_damage: Iterable[CorruptIndex] = (),
) -> Iterator[int]:
    """Offsets from ``files``, newest file first, and from ``others``, in descending order.

    Each offset once, if it is ``within`` the log. Damage ends the walk of its own file; the first
    error is raised at the end.
    """
    damage = list(known_damage)
    last = None
    for offset in merge(others, _through(files, wanted, damage), reverse=True):
        if offset != last and offset in within:
            yield offset
        last = offset
    if damage:
        raise damage[0]


def _through(
    files: Iterable[IndexFile], wanted: KeyQuestion, damage: list[CorruptIndex]
) -> Iterator[int]:
    for file in files:
        try:
            yield from walk(file, wanted)
        except CorruptIndex as error:
            damage.append(error)


def walk(file: IndexFile, wanted: KeyQuestion) -> Iterator[int]:
    """Offsets in one file; raises :class:`~lakelog.errors.CorruptIndex` at damage."""
    slot = wanted.key_hash % file.shape.slots
    number = file.slot(slot)
    header = file.settled_header()  # read after the slot, as the file may grow
    _check(file, header, slot, number)
    if not wanted.takes(header.begin_timestamp_ms, header.end_timestamp_ms + _ROUNDED_MS):
        return
    before = number + 1
    while number:
        if not 0 < number < before:
            raise file.corrupt(f"entry {before} points to {number}", file.shape.entry_at(before))
        key_hash, offset, seconds, previous = file.entry(number)
        if key_hash < 0 or key_hash % file.shape.slots != slot or seconds < 0 or offset < 0:
            raise file.corrupt(
                f"entry {number} cannot be in slot {slot}", file.shape.entry_at(number)
            )
        if key_hash == wanted.key_hash and wanted.takes(*_times(header, number, seconds)):
            yield offset
        before, number = number, previous


def _times(header: Header, number: int, seconds: int) -> tuple[int, int]:
    """The earliest and latest store time that an entry can represent."""
    if number == 1:
        return header.begin_timestamp_ms, header.begin_timestamp_ms
    first = header.begin_timestamp_ms + seconds * 1000
    return first, first + _ROUNDED_MS


def _check(file: IndexFile, header: Header, slot: int, number: int) -> None:
    for problem in header.problems(file.shape):
        raise file.corrupt(problem, 0)
    if number < header.count and number >= 0:
        return
    if not header.count <= number < file.shape.entries or not _in_flight(file, header, number):
        raise file.corrupt(
            f"slot {slot} says {number}, expected 0 to {header.count - 1}", file.shape.slot_at(slot)
        )


def _in_flight(file: IndexFile, header: Header, number: int) -> bool:
    """Whether another process is about to count an entry that it has already written."""
    key_hash, offset, _, _ = file.entry(number)
    return (key_hash, offset) != (0, 0) and offset >= header.end_offset
