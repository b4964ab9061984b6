"""The lines that a disk crosses as it gets full, and which of them one is above.

Each line has a share of used space, and where floors are set a least number of free bytes and of
free inodes: above a line is who is beyond it by any of these. RocketMQ has the shares alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import attrs

from lakelog.interfaces import DiskState
from lakelog_retention.measure import Measure
from lakelog_retention.settings import WatcherSettings
from lakelog_retention.words import percent, size

_FLOORS: Final = {
    DiskState.STOP_WRITING: 1.0,
    DiskState.CLEAN_FORCIBLY: 1.5,
    DiskState.CLEAN: 2.0,
}
"""How many times the floor is the least for each line."""


@attrs.frozen
class Line:
    """One line.

    :ivar state: what is asked for above it
    :ivar name: the setting of its share
    :ivar most_ratio: used space above it is too much
    :ivar least_bytes: free space below it is too little
    :ivar least_inodes: fewer free inodes are too few
    """

    state: DiskState
    name: str
    most_ratio: float
    least_bytes: int
    least_inodes: int

    def crossed(self, found: Measure) -> str:
        """In which respect a disk is above it; empty if it is not."""
        return "; ".join(self._respects(found))

    def least_free(self, found: Measure) -> int:
        """How many bytes must stay free for a disk not to be above it."""
        return max(math.ceil(found.total_bytes * (1 - self.most_ratio)), self.least_bytes)

    def _respects(self, found: Measure) -> Iterator[str]:
        if found.used_ratio > self.most_ratio:
            most = percent(self.most_ratio)
            yield f"{percent(found.used_ratio)} are used, {self.name} is {most}"
        if found.free_bytes < self.least_bytes:
            yield f"{size(found.free_bytes)} are free, {self._least('min_free_bytes')}" + size(
                self.least_bytes
            )
        if found.free_inodes is not None and found.free_inodes < self.least_inodes:
            least = self._least("min_free_inodes")
            yield f"{found.free_inodes} inodes are free, {least}{self.least_inodes}"

    def _least(self, name: str) -> str:
        times = _FLOORS[self.state]
        return f"{name} is " if times == 1 else f"{times:g} times {name} is "


def lines_of(settings: WatcherSettings) -> tuple[Line, ...]:
    """All lines, the highest first."""
    ratios = {
        DiskState.STOP_WRITING: "warning_ratio",
        DiskState.CLEAN_FORCIBLY: "clean_forcibly_ratio",
        DiskState.CLEAN: "max_used_ratio",
    }
    return tuple(
        Line(
            state,
            name,
            getattr(settings, name),
            int(settings.min_free_bytes * _FLOORS[state]),
            int(settings.min_free_inodes * _FLOORS[state]),
        )
        for state, name in ratios.items()
    )
