"""How does a custom cleaner choose segments to delete, and a custom watcher rate the disk?

This cleaner keeps as many bytes as a quota allows, and the last day in any case. This watcher uses
the quota of a container, which the file system does not report.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs

import lakelog
from lakelog.hooks import (
    CleaningContext,
    Context,
    Deletion,
    DeletionRate,
    DiskReport,
    DiskState,
    DiskUsage,
    Factory,
    Kind,
    SegmentInfo,
)
from lakelog.hooks.hookspecs import hookimpl

DAY_MS = 86_400_000


@attrs.frozen
class QuotaSettings:
    """Sections ``[quota]`` and ``[quota-disk]``; a size may be written as text, such as "10GiB"."""

    most_bytes: int = 10 << 30


@attrs.define
class QuotaCleaner:
    """Deletes the oldest segments while the log has more bytes than the quota.

    :ivar pace: how fast the store deletes
    :ivar remove_empty_queues: whether queues without messages are deleted too
    """

    most_bytes: int
    pace: DeletionRate = attrs.field(factory=DeletionRate)
    remove_empty_queues: bool = True

    def choose(
        self, segments: Sequence[SegmentInfo], situation: CleaningContext
    ) -> Sequence[Deletion]:
        """Choose from the oldest on; stop at the first one that must stay."""
        chosen = []
        kept_bytes = sum(each.size_bytes for each in segments)
        for segment in segments:  # without the active one
            is_young = situation.now_ms - segment.last_timestamp_ms < DAY_MS
            if kept_bytes <= self.most_bytes or segment.pinned_by:
                break
            if is_young and not situation.manual:
                break
            kept_bytes -= segment.size_bytes
            chosen.append(Deletion(segment.start_offset, f"over {self.most_bytes} bytes"))
        return chosen


@attrs.define
class QuotaWatcher:
    """Counts the bytes below each path, and stops puts before the quota is reached."""

    most_bytes: int

    def observe(self, paths: Sequence[Path]) -> DiskReport:
        """Return the usage of each path, and the required action."""
        usages = tuple(self._usage(each) for each in paths)
        fullest = max(usages, key=lambda each: each.used_ratio)
        limits = ((0.95, DiskState.STOP_WRITING), (0.8, DiskState.CLEAN))
        for limit, state in limits:
            if fullest.used_ratio > limit:
                return DiskReport(state, usages, f"{fullest.path} uses {fullest.used_ratio:.0%}")
        return DiskReport(DiskState.OK, usages)

    def _usage(self, path: Path) -> DiskUsage:
        there = next(each for each in (path, *path.parents) if each.exists())
        files = [Path(folder, name) for folder, _, names in os.walk(there) for name in names]
        used = sum(each.stat().st_blocks * 512 for each in files)
        free = max(0, self.most_bytes - used)
        return DiskUsage(path, self.most_bytes, free, min(1.0, used / self.most_bytes))


def make_cleaner(settings: QuotaSettings, _context: Context) -> QuotaCleaner:
    """Make the cleaner when a store opens."""
    return QuotaCleaner(settings.most_bytes)


def make_watcher(settings: QuotaSettings, _context: Context) -> QuotaWatcher:
    """Make the watcher when a store opens."""
    return QuotaWatcher(settings.most_bytes)


@hookimpl
def lakelog_cleaners() -> Sequence[Factory]:
    """Offer the cleaner; this module is the plugin."""
    return [Factory(Kind.CLEANER, "quota", QuotaSettings, make_cleaner)]


@hookimpl
def lakelog_disk_watchers() -> Sequence[Factory]:
    """Offer the watcher."""
    return [Factory(Kind.DISK_WATCHER, "quota-disk", QuotaSettings, make_watcher)]


def main(folder: str) -> None:
    """Fill a store, request a cleaning, and print the state of the disk."""
    with lakelog.open(
        folder,
        plugins=[sys.modules[__name__]],
        cleaner="quota",
        disk_watcher="quota-disk",
        quota={"most_bytes": 256 << 10},
        quota_disk={"most_bytes": 64 << 20},
        segment_size_bytes="64KiB",
    ) as store:
        for _ in range(1000):
            store.put(lakelog.Message("orders", b"x" * 900))
        store.wait_dispatched()
        before = store.max_offset - store.min_offset
        report = store.delete_expired()  # on request the last day is deleted, too
        print(f"{before} bytes, then {store.max_offset - store.min_offset}")
        print(len(report.deleted), "segments were deleted")
        disk = store.disk()
        print("the disk is", disk.state.value if disk else "not watched")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
