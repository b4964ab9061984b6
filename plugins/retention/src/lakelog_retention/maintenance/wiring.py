"""Builds the maintenance of an open store, in the process with the services and in the others."""

from __future__ import annotations

import errno
from contextlib import suppress
from functools import partial
from typing import Final

import attrs

from lakelog.dispatch.runner import DispatchRunner
from lakelog.errors import DispatchStopped
from lakelog.interfaces import (
    Cleaner,
    Clock,
    MaintainedLog,
    ServedLog,
)
from lakelog_retention.maintenance.clock import SystemClock
from lakelog_retention.maintenance.disks import Disks, paths_of
from lakelog_retention.maintenance.index_trim import IndexTrimmer, delete_unused
from lakelog_retention.maintenance.planning import ReaderGrace, RetentionHolds
from lakelog_retention.maintenance.remote import RemoteMaintenance
from lakelog_retention.maintenance.removal import Remover
from lakelog_retention.maintenance.rounds import Cleaning, MaintenanceRounds
from lakelog_retention.maintenance.segment_infos import SegmentInfos
from lakelog_retention.settings import MaintenanceSettings

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


@attrs.frozen
class SpaceMaintenance:
    """The store maintenance ``maintenance``; see :class:`~lakelog.interfaces.StoreMaintenance`."""

    settings: MaintenanceSettings

    def maintain(self, log: MaintainedLog, served: ServedLog) -> MaintenanceRounds:
        """Start the maintenance in the process with the services."""
        clock, watcher, cleaner = log.clock or SystemClock(), log.disk_watcher(), log.cleaner()
        disks = cleaning = None
        if watcher is not None:
            set_pause = served.page.set_pause
            disks = Disks(watcher, partial(paths_of, log), served.health, log.events, set_pause)
        if cleaner is not None:
            cleaning = self._cleaning(log, served, cleaner, clock)
        made = MaintenanceRounds(
            self.settings,
            clock,
            served.health,
            cleaning,
            disks,
            partial(dispatch_again, served.reput),
            partial(_delete_unused, served),
        )
        if disks is not None:
            served.log.segments.hold_back(disks.is_scarce)
        made.start()
        return made

    def view(self, log: MaintainedLog) -> RemoteMaintenance:
        """Build the maintenance in any other process."""
        return RemoteMaintenance(log, self.settings, log.clock or SystemClock())

    def _cleaning(
        self, log: MaintainedLog, served: ServedLog, cleaner: Cleaner, clock: Clock
    ) -> Cleaning:
        settings, of_log, pace = self.settings, served.log, cleaner.pace
        forget = partial(delete_unused, of_log)
        return Cleaning(
            cleaner,
            SegmentInfos(log, of_log.segments.readers, settings.pin_expires_after_ms),
            RetentionHolds(
                lambda: served.reput.offset, settings.override_pins, ReaderGrace(clock, pace)
            ),
            Remover(of_log, served.health, log.events, log.directory.segment, clock, pace),
            IndexTrimmer(
                served.reput, of_log.positions, forget if cleaner.remove_empty_queues else None
            ),
        )


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


def _delete_unused(served: ServedLog) -> list[str]:
    with served.reput.paused() as dispatchers:
        return delete_unused(served.log, dispatchers)
