"""Puts together what keeps house for an owner, and what only looks for a reader."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import attrs

from lakelog.dispatch.run import Named
from lakelog.dispatch.runner import Dispatches
from lakelog.dispatch.topic_removal import delete_topic, forgetter, unused_topics
from lakelog.errors import DispatchStopped
from lakelog.files.state.pins import Pin, read_pins
from lakelog.format.layout import CONSUMEQUEUE_DIR, INDEX_DIR
from lakelog.housekeeping.clock import Clock
from lakelog.housekeeping.disks import Disks, watched
from lakelog.housekeeping.following import Following
from lakelog.housekeeping.infos import Held, SegmentInfos
from lakelog.housekeeping.maintenance import Cleaning, Maintenance, situation
from lakelog.housekeeping.planning import Holding, Patience, dry_run
from lakelog.housekeeping.removal import Remover
from lakelog.housekeeping.report import CleaningReport
from lakelog.interfaces import Cleaner, DiskReport, DiskWatcher, QueueReader
from lakelog.log.reading.log_reader import LogReader
from lakelog.log.reading.source import FileSource
from lakelog.registry.events import Events
from lakelog.runtime.cached import cached_property
from lakelog.settings.model import MaintenanceSettings
from lakelog.store.owner import OwnedLog

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class House(Protocol):
    """Whom a store asks about disk space."""

    def disk(self) -> DiskReport | None:
        """Look at the disks; ``None`` without a watcher."""

    def look(self) -> CleaningReport | None:
        """Say what would be deleted; ``None`` without a cleaner."""

    def close(self) -> None:
        """Stop."""


def keep_house(
    owned: OwnedLog,
    cleaner: Cleaner | None,
    watcher: DiskWatcher | None,
    settings: MaintenanceSettings,
    events: Events,
    clock: Clock,
) -> Maintenance:
    """What keeps house for an owner; it is for the caller to start it."""
    directory, health = owned.directory, owned.health
    paths = partial(_paths, directory.path, directory.commitlog)
    tell = owned.page.tell_pause
    tell(None)  # of a process that had the services before
    disks = None if watcher is None else Disks(watcher, paths, health, events, tell)
    cleaning = None if cleaner is None else _cleaning(owned, cleaner, settings, events, clock)
    go_on = partial(dispatch_again, owned.reput)
    made = Maintenance(settings, clock, health, cleaning, disks, go_on)
    if disks is not None:
        owned.segments.hold_back(disks.is_scarce)
    return made


def dispatch_again(reput: Dispatches) -> None:
    """Dispatch again if it stopped because a disk was full; a new failure is logged.

    The cleaner deletes no segment that was not dispatched. So this is tried while puts are still
    refused, too: else neither would ever go on.
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
    owned: OwnedLog, cleaner: Cleaner, settings: MaintenanceSettings, events: Events, clock: Clock
) -> Cleaning:
    directory, segments = owned.directory, owned.segments
    held = Held(
        lambda: read_pins(directory.files, directory.path),
        segments.readers,
        settings.pin_expires_after_ms,
    )
    return Cleaning(
        cleaner,
        SegmentInfos(owned.reader, segments.starts, segments.size_bytes, held),
        Holding(lambda: owned.reput.offset, settings.override_pins, Patience(clock, cleaner.pace)),
        Remover(owned.log, owned.health, events, directory.segment, clock, cleaner.pace),
        Following(
            owned.reput,
            owned.positions,
            partial(forget_unused, owned) if cleaner.remove_empty_queues else None,
            -1 if owned.dispatchers else owned.positions.minimum,
        ),
    )


def forget_unused(owned: OwnedLog, dispatchers: Sequence[Named]) -> list[str]:
    """Remove the queues of topics of which nothing is left; their names.

    Called while nothing is dispatched, with what pausing that gave. What is not dispatched yet is
    not buried: it makes queues again.
    """
    readers = [each.dispatcher for each in dispatchers if isinstance(each.dispatcher, QueueReader)]
    positions, directory = owned.positions, owned.directory
    removed: list[str] = []
    for reader in readers[:1]:
        removed = unused_topics(reader, positions.minimum)
        if removed:
            owned.log.sync()  # a tombstone must not reach beyond what a power cut leaves
        for topic in removed:
            forget = forgetter(dispatchers)
            delete_topic(directory.files, directory.path, topic, positions.dispatched, forget)
    return removed


@attrs.define(slots=False, eq=False)
class Onlooker:
    """Says what an owner's cleaner would do, beside one or where none is; changes nothing.

    :ivar make_cleaner: makes what the settings name; ``None`` where they name nothing
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
        """Say what would go."""
        cleaner = self._cleaner
        return None if cleaner is None else self._look(cleaner)

    def _look(self, cleaner: Cleaner) -> CleaningReport:
        now_ms = self._clock.now_ms()
        held = Held(self._pins, _nobody, self._settings.pin_expires_after_ms)
        infos = SegmentInfos(self._reader, self._source.starts, self._size_bytes, held)
        holds = Holding(
            lambda: self._reader.max_offset,
            self._settings.override_pins,
            Patience(self._clock, cleaner.pace),
        )
        seen = situation(now_ms, self.disk(), manual=True)
        return dry_run(cleaner, infos.sealed(now_ms), seen, holds, infos.minimum)

    def close(self) -> None:
        """Nothing runs."""


def _nobody(_start: int) -> int:
    """Readers of other processes are not known."""
    return 0
