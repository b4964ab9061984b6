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
from lakelog_retention.lines import lines_of
from lakelog_retention.measure import Measure, Meter, measure
from lakelog_retention.settings import WatcherSettings

_RANK: Final = {state: rank for rank, state in enumerate(DiskState)}


@attrs.frozen
class Opinion:
    """The rating of one disk, with the reason."""

    state: DiskState = DiskState.OK
    reason: str = ""


class PsutilWatcher:
    """Rates disks, and tracks which of them stopped the puts."""

    def __init__(self, settings: WatcherSettings, meter: Meter = measure) -> None:
        self._stop, self._forcibly, self._clean = lines_of(settings)
        self._meter = meter
        self._stopped: frozenset[int] = frozenset()

    def observe(self, paths: Sequence[Path]) -> DiskReport:
        """Measure every disk once; raises ``OSError`` on failure."""
        found = {path: self._meter(path) for path in paths}
        disks = {each.device: each for each in found.values()}
        opinions = {device: self._judge(each) for device, each in disks.items()}
        self._stopped = frozenset(
            device for device, each in opinions.items() if each.state is DiskState.STOP_WRITING
        )
        worst = max(opinions, key=lambda device: _rank(opinions[device], disks[device]), default=-1)
        verdict = opinions.get(worst, Opinion())
        return DiskReport(
            verdict.state,
            tuple(self._usage(path, found[path]) for path in paths),
            f"{_name(worst, found)}: {verdict.reason}" if verdict.reason else "",
        )

    def _judge(self, disk: Measure) -> Opinion:
        stops = self._stop.crossed(disk)
        if stops:
            return Opinion(DiskState.STOP_WRITING, stops)
        forcibly = self._forcibly.crossed(disk)
        if forcibly and disk.device in self._stopped:
            return Opinion(DiskState.STOP_WRITING, f"{forcibly}; it was fuller, and not yet below")
        if forcibly:
            return Opinion(DiskState.CLEAN_FORCIBLY, forcibly)
        clean = self._clean.crossed(disk)
        return Opinion(DiskState.CLEAN, clean) if clean else Opinion()

    def _usage(self, path: Path, disk: Measure) -> DiskUsage:
        return DiskUsage(
            path,
            disk.total_bytes,
            disk.free_bytes,
            disk.used_ratio,
            disk.free_inodes,
            self._stop.least_free(disk),
        )


def _rank(opinion: Opinion, disk: Measure) -> tuple[int, float]:
    return _RANK[opinion.state], disk.used_ratio


def _name(device: int, found: Mapping[Path, Measure]) -> str:
    """The first of the observed paths on a disk."""
    return str(next(path for path, disk in found.items() if disk.device == device))
