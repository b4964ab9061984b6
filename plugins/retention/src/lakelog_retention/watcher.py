"""``psutil``: rates each disk by its thresholds, with hysteresis; the fullest disk decides.

A disk above ``warning_ratio`` stops the puts. They resume only when it is no longer above
``clean_forcibly_ratio``. RocketMQ uses the emptiest of several commit log paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from lakelog.interfaces import DiskReport, DiskState, DiskUsage
from lakelog_retention.measure import Measure, Meter, measure
from lakelog_retention.settings import WatcherSettings
from lakelog_retention.thresholds import thresholds_of

_RANK: Final = {state: rank for rank, state in enumerate(DiskState)}


@attrs.frozen
class DiskRating:
    """The rating of one disk, with the reason."""

    state: DiskState = DiskState.OK
    reason: str = ""


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
            device for device, each in ratings.items() if each.state is DiskState.STOP_WRITING
        )
        worst = max(ratings, key=lambda device: _rank(ratings[device], disks[device]), default=-1)
        worst_rating = ratings.get(worst, DiskRating())
        return DiskReport(
            worst_rating.state,
            tuple(self._usage(path, found[path]) for path in paths),
            f"{_name(worst, found)}: {worst_rating.reason}" if worst_rating.reason else "",
        )

    def _judge(self, disk: Measure) -> DiskRating:
        stops = self._stop.exceeded_by(disk)
        if stops:
            return DiskRating(DiskState.STOP_WRITING, stops)
        forcibly = self._forcibly.exceeded_by(disk)
        if forcibly and disk.device in self._stopped:
            return DiskRating(
                DiskState.STOP_WRITING, f"{forcibly}; it was fuller, and not yet below"
            )
        if forcibly:
            return DiskRating(DiskState.CLEAN_FORCIBLY, forcibly)
        clean = self._clean.exceeded_by(disk)
        return DiskRating(DiskState.CLEAN, clean) if clean else DiskRating()

    def _usage(self, path: Path, disk: Measure) -> DiskUsage:
        return DiskUsage(
            path,
            disk.total_bytes,
            disk.free_bytes,
            disk.used_ratio,
            disk.free_inodes,
            self._stop.least_free(disk),
        )


def _rank(rating: DiskRating, disk: Measure) -> tuple[int, float]:
    return _RANK[rating.state], disk.used_ratio


def _name(device: int, found: Mapping[Path, Measure]) -> str:
    """The first of the observed paths on a disk."""
    return str(next(path for path, disk in found.items() if disk.device == device))
