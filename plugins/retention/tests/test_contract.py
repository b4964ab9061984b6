"""Cleaners, watcher and plugin fulfil the contracts of their kinds; a store without them."""

from __future__ import annotations

from pathlib import Path

from lakelog.hooks import Cleaner, DiskWatcher
from lakelog_retention import plugin
from lakelog_retention.cleaner import KeepForever, Retention
from lakelog_retention.settings import RetentionSettings, WatcherSettings
from lakelog_retention.watcher import Measure, PsutilWatcher
from lakelog_testing import CleanerContract, DiskWatcherContract, PluginContract


class TestWithLimits(CleanerContract):
    def make(self) -> Cleaner:
        return Retention(RetentionSettings(max_segments=9, max_total_bytes=5 << 20))


class TestKeepForever(CleanerContract):
    def make(self) -> Cleaner:
        return KeepForever()


class TestWatcher(DiskWatcherContract):
    def make(self) -> DiskWatcher:
        return PsutilWatcher(WatcherSettings())


class TestWatcherThatWantsMore(DiskWatcherContract):
    def make(self) -> DiskWatcher:
        return PsutilWatcher(WatcherSettings(min_free_bytes=1 << 60))


class TestWatcherOfAFullDisk(DiskWatcherContract):
    def make(self) -> DiskWatcher:
        def full(_: Path) -> Measure:
            return Measure(1, 1000, 0, 0)

        return PsutilWatcher(WatcherSettings(), full)


class TestPlugin(PluginContract):
    plugin = plugin
