"""The thresholds of disk usage, and which of them a disk exceeds.

Each threshold has a ratio of used space, and optionally a minimum of free bytes and of free inodes.
A disk exceeds it if it violates any of these. RocketMQ has only the ratios.
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
"""The minimum of each threshold, as a multiple of the setting."""


@attrs.frozen
class DiskThreshold:
    """One threshold.

    :ivar state: the state of a disk that exceeds it
    :ivar name: the setting with its ratio
    :ivar most_ratio: highest ratio of used space
    :ivar least_bytes: lowest free space
    :ivar least_inodes: lowest number of free inodes
    """

    state: DiskState
    name: str
    most_ratio: float
    least_bytes: int
    least_inodes: int

    def exceeded_by(self, found: Measure) -> str:
        """How a disk exceeds it, in words; empty if it does not."""
        return "; ".join(self._violations(found))

    def least_free(self, found: Measure) -> int:
        """The free bytes that a disk needs not to exceed it."""
        return max(math.ceil(found.total_bytes * (1 - self.most_ratio)), self.least_bytes)

    def _violations(self, found: Measure) -> Iterator[str]:
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


def thresholds_of(settings: WatcherSettings) -> tuple[DiskThreshold, ...]:
    """All thresholds, the highest first."""
    ratios = {
        DiskState.STOP_WRITING: "warning_ratio",
        DiskState.CLEAN_FORCIBLY: "clean_forcibly_ratio",
        DiskState.CLEAN: "max_used_ratio",
    }
    return tuple(
        DiskThreshold(
            state,
            name,
            getattr(settings, name),
            int(settings.min_free_bytes * _FLOORS[state]),
            int(settings.min_free_inodes * _FLOORS[state]),
        )
        for state, name in ratios.items()
    )
