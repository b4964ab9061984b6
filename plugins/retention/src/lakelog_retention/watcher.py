"""``psutil``: rates each disk by its thresholds, with hysteresis; the fullest disk decides.

A disk above ``warning_ratio`` stops the puts. They resume only when it is no longer above
``clean_forcibly_ratio``. RocketMQ uses the emptiest of several commit log paths.

Each threshold has a ratio of used space, and optionally a minimum of free bytes and of free inodes.
A disk exceeds it if it violates any of these. RocketMQ has only the ratios.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from lakelog.hooks import DiskReport, DiskState, DiskUsage
from lakelog_retention.settings import WatcherSettings

_THRESHOLDS: Final = (
    ("warning_ratio", 1.0),
    ("clean_forcibly_ratio", 1.5),
    ("max_used_ratio", 2.0),
)
"""The ratio of each threshold, the highest first, and its minimum as a multiple of the setting."""
_RANK: Final = {state: rank for rank, state in enumerate(DiskState)}
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


@attrs.frozen
class Measure:
    """The usage of one file system.

    :ivar device: its device number
    :ivar used_bytes: used space
    :ivar free_bytes: space available to users other than root
    :ivar free_inodes: inodes available to users other than root; ``None`` if unlimited
    """

    device: int
    used_bytes: int
    free_bytes: int
    free_inodes: int | None = None

    @property
    def total_bytes(self) -> int:
        """Used space plus the space available to users other than root."""
        return self.used_bytes + self.free_bytes

    @property
    def used_ratio(self) -> float:
        """From 0 to 1, without the space reserved for root (as in ``df`` and RocketMQ)."""
        return self.used_bytes / self.total_bytes if self.total_bytes else 1.0


Meter: TypeAlias = Callable[[Path], Measure]
"""Measures the file system of a path; raises ``OSError``."""


def measure(path: Path) -> Measure:
    """Measure the file system of ``path``, or of its nearest existing parent."""
    import psutil  # slow to import

    path = path.absolute()
    place = next(each for each in (path, *path.parents) if each.exists())
    usage, found = psutil.disk_usage(os.fspath(place)), os.statvfs(place)
    return Measure(
        device=place.stat().st_dev,
        used_bytes=usage.used,
        free_bytes=usage.free,
        free_inodes=found.f_favail if found.f_files else None,
    )


@attrs.frozen
class DiskThreshold:
    """One threshold.

    :ivar name: the setting with its ratio
    :ivar floor: its minimum of free space, as a multiple of the setting
    :ivar most_ratio: highest ratio of used space
    :ivar least_bytes: lowest free space
    :ivar least_inodes: lowest number of free inodes
    """

    name: str
    floor: float
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
        return f"{name} is " if self.floor == 1 else f"{self.floor:g} times {name} is "


def thresholds_of(settings: WatcherSettings) -> tuple[DiskThreshold, ...]:
    """All thresholds, the highest first."""
    return tuple(
        DiskThreshold(
            *(name, floor, getattr(settings, name)),
            *(int(settings.min_free_bytes * floor), int(settings.min_free_inodes * floor)),
        )
        for name, floor in _THRESHOLDS
    )


class PsutilWatcher:
    """Rates disks, and tracks which of them stopped the puts."""

    def __init__(self, settings: WatcherSettings, meter: Meter = measure) -> None:
        self._stop, self._forcibly, self._clean = thresholds_of(settings)
        self._meter = meter
        self._stopped: frozenset[int] = frozenset()

    def observe(self, paths: Sequence[Path]) -> DiskReport:
        """Measure every disk once; raises ``OSError`` on failure."""
        found = {path: self._meter(path) for path in paths}
        disks = {each.device: each for each in found.values()}
        ratings = {device: self._judge(each) for device, each in disks.items()}
        self._stopped = frozenset(
            device for device, each in ratings.items() if each[0] is DiskState.STOP_WRITING
        )

        def rank(device: int) -> tuple[int, float]:
            return _RANK[ratings[device][0]], disks[device].used_ratio

        worst = max(ratings, key=rank, default=-1)
        state, reason = ratings.get(worst, (DiskState.OK, ""))
        if reason:
            first = next(path for path in paths if found[path].device == worst)
            reason = f"{first}: {reason}"
        return DiskReport(state, tuple(self._usage(path, found[path]) for path in paths), reason)

    def _judge(self, disk: Measure) -> tuple[DiskState, str]:
        """The state of one disk, with the reason."""
        stops = self._stop.exceeded_by(disk)
        if stops:
            return DiskState.STOP_WRITING, stops
        forcibly = self._forcibly.exceeded_by(disk)
        if forcibly and disk.device in self._stopped:
            return DiskState.STOP_WRITING, f"{forcibly}; it was fuller, and not yet below"
        if forcibly:
            return DiskState.CLEAN_FORCIBLY, forcibly
        clean = self._clean.exceeded_by(disk)
        return DiskState.CLEAN if clean else DiskState.OK, clean

    def _usage(self, path: Path, disk: Measure) -> DiskUsage:
        return DiskUsage(
            path,
            disk.total_bytes,
            disk.free_bytes,
            disk.used_ratio,
            disk.free_inodes,
            self._stop.least_free(disk),
        )


def percent(ratio: float) -> str:
    """A ratio as a percentage."""
    return f"{ratio:.1%}"


def size(count_bytes: int) -> str:
    """A size in the largest unit that is not above it.

    >>> size(1000), size(1 << 20), size(3 << 29)
    ('1000 bytes', '1.0 MiB', '1.5 GiB')
    """
    amount, at = float(count_bytes), 0
    while amount >= 1024 and at + 1 < len(_UNITS):
        amount, at = amount / 1024, at + 1
    return f"{amount:.1f} {_UNITS[at]}" if at else f"{count_bytes} {_UNITS[0]}"
