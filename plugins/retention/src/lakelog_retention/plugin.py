"""The plugin that offers two cleaners and the disk-space watcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lakelog.hooks import Context, Factory, Kind, NoSettings
from lakelog.hooks.hookspecs import hookimpl

if TYPE_CHECKING:
    from lakelog_retention.settings import RetentionSettings, WatcherSettings


_SETTINGS: Final = "lakelog_retention.settings"


def make_retention(settings: RetentionSettings, _context: Context) -> object:
    """Build the cleaner from its settings."""
    from lakelog_retention.cleaner import Retention

    return Retention(settings)


def make_forever(_settings: NoSettings, _context: Context) -> object:
    """Build the cleaner that deletes nothing."""
    from lakelog_retention.cleaner import KeepForever

    return KeepForever()


def make_watcher(settings: WatcherSettings, _context: Context) -> object:
    """Build the watcher from its settings."""
    from lakelog_retention.watcher import PsutilWatcher

    return PsutilWatcher(settings)


@hookimpl
def lakelog_cleaners() -> Sequence[Factory]:
    """Offer the cleaners ``retention`` and ``keep-forever``."""
    kind, nothing = Kind.CLEANER, "deletes nothing, whatever the disk says"
    rules = "deletes by age, size, number, and what the disk asks for: RocketMQ's rules"
    return [
        Factory(kind, "retention", f"{_SETTINGS}:RetentionSettings", make_retention, rules),
        Factory(kind, "keep-forever", NoSettings, make_forever, nothing),
    ]


@hookimpl
def lakelog_disk_watchers() -> Sequence[Factory]:
    """Offer the watcher ``psutil``."""
    summary = "asks for cleaning, then refuses writes, as a disk gets full"
    return [
        Factory(Kind.DISK_WATCHER, "psutil", f"{_SETTINGS}:WatcherSettings", make_watcher, summary)
    ]
