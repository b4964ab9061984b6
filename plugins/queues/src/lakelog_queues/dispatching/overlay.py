"""Units that a reader keeps in memory until the owner has written them to files."""

from __future__ import annotations

from typing import TypeAlias

from lakelog_queues.files.openfiles import UnitLocation
from lakelog_queues.files.unitfiles import UnitFiles
from lakelog_queues.units.simpleunits import UNIT_BYTES, alike, columns

Held: TypeAlias = tuple[int, memoryview]


class Overlay:
    """The last units of a queue, in file format; one thread changes them, any thread reads."""

    __slots__ = ("_held", "_room")

    def __init__(self, start: int) -> None:
        self._room = bytearray()
        self._held: Held = (start, memoryview(self._room))

    def held(self) -> Held:
        """Queue offset of the first unit in memory, and the units; a consistent pair."""
        return self._held

    def append(self, units: bytes | memoryview) -> None:
        """Add units."""
        start, before = self._held
        length = len(before) + len(units)
        if length > len(self._room):
            room = bytearray(max(length, 2 * len(self._room)))
            room[: len(before)] = before
            self._room = room
        self._room[len(before) : length] = units
        self._held = (start, memoryview(self._room)[:length])

    def cut(self, end: int) -> None:
        """Remove units from queue offset ``end`` on; if ``end`` is lower, it becomes the start."""
        start, units = self._held
        self._hold(min(start, end), units[: max(0, end - start) * UNIT_BYTES])

    def drop_written(self, files: UnitFiles) -> None:
        """Remove the leading units that the owner has written to files meanwhile."""
        start, held = self._held
        written = files.read(start, len(held) // UNIT_BYTES)
        count = _count_alike(written, held[: len(written)])
        if count:
            self._hold(start + count, held[count * UNIT_BYTES :])

    def place(self, offset: int, files: UnitFiles) -> UnitLocation:
        """The place of the unit of a queue offset, in memory or in the files."""
        start, held = self._held
        if offset >= start:
            end = start + len(held) // UNIT_BYTES
            return held[(offset - start) * UNIT_BYTES :], 0, end - offset
        source, position, room = files.held(offset)
        return source, position, min(room, start - offset)

    def _hold(self, start: int, units: bytes | memoryview) -> None:
        self._room = bytearray(units)
        self._held = (start, memoryview(self._room))


def _count_alike(written: bytes, held: memoryview) -> int:
    """The number of leading units that refer to the same records; their tags codes may differ."""
    if written == held:
        return len(written) // UNIT_BYTES
    same = alike(columns(written), columns(held))
    return len(same) if same.all() else int(same.argmin())
