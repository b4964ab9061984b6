"""Checks the disks of a store; pauses and resumes puts according to the disk-space watcher."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from lakelog.format.layout import CONSUMEQUEUE_DIR, INDEX_DIR
from lakelog.hooks import DiskReport, DiskState, DiskWatcher
from lakelog.log.health import Health
from lakelog.log.store_directory import StoreDirectory
from lakelog.registry.registry import Events


def watched(path: Path, commitlog: Path) -> tuple[Path, ...]:
    """The paths of a store that may be on separate disks: log, queues, index, the rest."""
    inside = (path / name for name in (CONSUMEQUEUE_DIR, INDEX_DIR) if (path / name).is_dir())
    return tuple(dict.fromkeys((commitlog, *inside, path)))


def paths_of(directory: StoreDirectory) -> tuple[Path, ...]:
    """The paths of an open store that may be on separate disks."""
    return watched(directory.path, directory.commitlog)


class Disks:
    """The disks of one open store; thread-safe.

    :param paths: the paths to check; the log's is first
    :param set_pause: publishes the reason for a pause of puts to other processes; ``None`` ends it
    """

    def __init__(
        self,
        watcher: DiskWatcher,
        paths: Callable[[], Sequence[Path]],
        health: Health,
        events: Events,
        set_pause: Callable[[str | None], None],
    ) -> None:
        self._watcher = watcher
        self._paths = paths
        self._health = health
        self._events = events
        self._set_pause = set_pause
        self._report: DiskReport | None = None
        self._lock = Lock()

    def look(self) -> DiskReport:
        """Check the disks; pause or resume puts accordingly."""
        with self._lock:
            paths = self._paths()
            before = DiskState.OK if self._report is None else self._report.state
            report = self._report = self._watcher.observe(paths)
            if report.state is DiskState.STOP_WRITING:
                self._health.pause(_refusal(report))
            elif self._health.paused is not None:
                self._health.unpause()
            self._set_pause(self._health.paused)
        if report.state is not before:
            self._events.disk_pressure(self._health.path, report.state)
        return report

    def is_scarce(self, size_bytes: int) -> bool:
        """Whether ``size_bytes`` more would fill a disk beyond the limit where puts are paused."""
        report = self._report
        if report is None:
            return False
        if report.state is DiskState.STOP_WRITING:
            return True
        log = report.disks[0] if report.disks else None
        if log is None or not log.keep_free_bytes:
            return False
        return _free_bytes(log.path) - size_bytes < log.keep_free_bytes


def _free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _refusal(report: DiskReport) -> str:
    why = report.reason or "reported by its watcher"
    return (
        f"the disk is too full to take messages ({why}); make room, or let a cleaner delete old "
        "segments; puts are accepted again once there is enough room"
    )
