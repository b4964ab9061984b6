"""Units that a reader keeps in memory, as it may write no file, and the owner has not yet."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from lakelog_queues.files.openfiles import Place
from lakelog_queues.files.unitfiles import UnitFiles
from lakelog_queues.units.simpleunits import NONE, UNIT, RawUnits, alike

Held: TypeAlias = tuple[int, RawUnits]


class Overlay:
    """The last units of a queue; one thread changes them, any thread reads."""

    __slots__ = ("_held", "_room")

    def __init__(self, start: int) -> None:
        self._held: Held = (start, NONE)
        self._room = NONE

    def held(self) -> Held:
        """Queue offset of the first unit in memory, and the units; a consistent pair."""
        return self._held

    def append(self, units: RawUnits) -> None:
        """Add units."""
        start, before = self._held
        length = len(before) + len(units)
        if length > len(self._room):
            self._room = np.empty(max(length, 2 * len(self._room)), UNIT)
            self._room[: len(before)] = before
        self._room[len(before) : length] = units
        self._held = (start, self._room[:length])

    def cut(self, end: int) -> None:
        """Remove units from queue offset ``end`` on; if ``end`` is lower, it becomes the start."""
        start, units = self._held
        self._room = units[: max(0, end - start)].copy()
        self._held = (min(start, end), self._room)

    def drop_written(self, files: UnitFiles) -> None:
        """Remove the leading units that the owner has written to files meanwhile."""
        start, held = self._held
        written = files.read(start, len(held))
        same = alike(written, held[: len(written)])
        count = len(same) if same.all() else int(same.argmin())
        if count:
            self._room = held[count:].copy()
            self._held = (start + count, self._room)

    def place(self, offset: int, files: UnitFiles) -> Place:
        """The place of the unit of a queue offset, in memory or in the files."""
        start, held = self._held
        if offset >= start:
            return held[offset - start :].view(np.uint8), 0, start + len(held) - offset
        source, position, room = files.held(offset)
        return source, position, min(room, start - offset)
