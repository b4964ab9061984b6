"""Builds disk-space maintenance: active for an owner, dry-run for a reader."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import attrs

from lakelog.dispatch.run import NamedDispatcher, forget_topic, unused_topics
from lakelog.dispatch.runner import DispatchRunner
from lakelog.errors import DispatchStopped
from lakelog.files.state.pins import Pin, read_pins
from lakelog.format.layout import CONSUMEQUEUE_DIR, INDEX_DIR
from lakelog.housekeeping.clock import Clock
from lakelog.housekeeping.disks import Disks, watched
from lakelog.housekeeping.following import IndexTrimmer
from lakelog.housekeeping.infos import SegmentHolders, SegmentInfos
from lakelog.housekeeping.maintenance import Cleaning, Maintenance, situation
from lakelog.housekeeping.planning import ReaderGrace, RetentionHolds, dry_run
from lakelog.housekeeping.removal import Remover
from lakelog.housekeeping.report import CleaningReport
from lakelog.interfaces import Cleaner, DiskReport, DiskWatcher, QueueReader
from lakelog.log.reading.log_reader import LogReader
from lakelog.log.reading.sources import FileSource
from lakelog.registry.events import Events
from lakelog.runtime.cached import cached_property
from lakelog.settings.model import MaintenanceSettings
from lakelog.store.owner import OwnedStore

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class SpaceManager(Protocol):
    """Disk-space maintenance, as a store uses it."""

    def disk(self) -> DiskReport | None:
        """Look at the disks; ``None`` without a watcher."""

    def look(self) -> CleaningReport | None:
        """Report what would be deleted; ``None`` without a cleaner."""

    def close(self) -> None:
        """Stop."""


def keep_house(
    owned: OwnedStore,
    cleaner: Cleaner | None,
    watcher: DiskWatcher | None,
    settings: MaintenanceSettings,
    events: Events,
    clock: Clock,
) -> Maintenance:
    """Build the maintenance of an owner; the caller starts it."""
    directory, health = owned.directory, owned.health
    paths = partial(_paths, directory.path, directory.commitlog)
    tell = owned.page.tell_pause
    # The process that had the services before may have left a pause in the shared page.
    tell(None)
    disks = None if watcher is None else Disks(watcher, paths, health, events, tell)
    cleaning = None if cleaner is None else _cleaning(owned, cleaner, settings, events, clock)
    go_on = partial(dispatch_again, owned.reput)
    made = Maintenance(settings, clock, health, cleaning, disks, go_on)
    if disks is not None:
        owned.segments.hold_back(disks.is_scarce)
    return made


def dispatch_again(reput: DispatchRunner) -> None:
    """Resume dispatching if a full disk stopped it; a new failure is logged.

    The cleaner deletes no segment before it is dispatched. This therefore also runs while puts are
    refused: otherwise the cleaner and the dispatcher would wait for each other for ever.
    """
    error: BaseException | None = reput.failure
    while error is not None and getattr(error, "errno", None) not in _NO_ROOM:
        error = error.__cause__
    if error is not None:
        with suppress(DispatchStopped):
            reput.resume()


def _paths(path: Path, commitlog: Path) -> tuple[Path, ...]:
    return watched(path, commitlog, (CONSUMEQUEUE_DIR, INDEX_DIR))


def _cleaning(
    owned: OwnedStore, cleaner: Cleaner, settings: MaintenanceSettings, events: Events, clock: Clock
) -> Cleaning:
    directory, segments = owned.directory, owned.segments
    held = SegmentHolders(
        lambda: read_pins(directory.files, directory.path),
        segments.readers,
        settings.pin_expires_after_ms,
    )
    return Cleaning(
        cleaner,
        SegmentInfos(owned.reader, segments.starts, segments.size_bytes, held),
        RetentionHolds(
            lambda: owned.reput.offset, settings.override_pins, ReaderGrace(clock, cleaner.pace)
        ),
        Remover(owned.log, owned.health, events, directory.segment, clock, cleaner.pace),
        IndexTrimmer(
            owned.reput,
            owned.positions,
            partial(forget_unused, owned) if cleaner.remove_empty_queues else None,
            -1 if owned.dispatchers else owned.positions.minimum,
        ),
    )


def forget_unused(owned: OwnedStore, dispatchers: Sequence[NamedDispatcher]) -> list[str]:
    """Remove the queues of topics without remaining records; return the topic names.

    Dispatching must be paused; ``dispatchers`` come from ``reput.paused()``. The tombstone ends at
    ``dispatched``: records that are dispatched later create the queues again.
    """
    readers = [each.dispatcher for each in dispatchers if isinstance(each.dispatcher, QueueReader)]
    positions = owned.positions
    removed: list[str] = []
    for reader in readers[:1]:
        removed = unused_topics(reader, positions.minimum)
        if removed:
            owned.log.sync()  # a tombstone must not reach beyond the durable end
        for topic in removed:
            forget_topic(dispatchers, topic, positions.dispatched)
    return removed


@attrs.define(slots=False, eq=False)
class DryRunCleaner:
    """Dry-run maintenance for a reader: reports what the owner's cleaner would delete.

    :ivar make_cleaner: builds the configured cleaner; ``None`` if none is configured
    """

    _path: Path
    _source: FileSource
    _commitlog: Path
    _reader: LogReader
    _size_bytes: int
    _settings: MaintenanceSettings
    _clock: Clock
    _pins: Callable[[], Sequence[Pin]]
    _make_cleaner: Callable[[], Cleaner | None]
    _make_watcher: Callable[[], DiskWatcher | None]

    @cached_property
    def _cleaner(self) -> Cleaner | None:
        return self._make_cleaner()

    @cached_property
    def _watcher(self) -> DiskWatcher | None:
        return self._make_watcher()

    def disk(self) -> DiskReport | None:
        """Look at the disks."""
        watcher = self._watcher
        return None if watcher is None else watcher.observe(_paths(self._path, self._commitlog))

    def look(self) -> CleaningReport | None:
        """Report what would be deleted."""
        cleaner = self._cleaner
        return None if cleaner is None else self._look(cleaner)

    def _look(self, cleaner: Cleaner) -> CleaningReport:
        now_ms = self._clock.now_ms()
        held = SegmentHolders(self._pins, _nobody, self._settings.pin_expires_after_ms)
        infos = SegmentInfos(self._reader, self._source.starts, self._size_bytes, held)
        holds = RetentionHolds(
            lambda: self._reader.max_offset,
            self._settings.override_pins,
            ReaderGrace(self._clock, cleaner.pace),
        )
        seen = situation(now_ms, self.disk(), manual=True)
        return dry_run(cleaner, infos.sealed(now_ms), seen, holds, infos.minimum)

    def close(self) -> None:
        """Do nothing: no thread runs."""


def _nobody(_start: int) -> int:
    """Number of views held: always 0, as views in other processes are unknown."""
    return 0
