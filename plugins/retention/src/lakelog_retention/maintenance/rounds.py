"""Runs maintenance rounds: check disks, run the cleaner, delete, trim queues and index.

A failed round is logged, and the next one runs all the same. Periodic rounds run in their own
thread, and requested rounds in the caller's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Final

import attrs

from lakelog.errors import StoreClosed, StoreFailed
from lakelog.interfaces import (
    Cleaner,
    CleaningContext,
    CleaningReport,
    Clock,
    DiskReport,
    DiskState,
)
from lakelog.log.health import Health
from lakelog.runtime.threads import started
from lakelog_retention.maintenance.disks import Disks
from lakelog_retention.maintenance.index_trim import IndexTrimmer
from lakelog_retention.maintenance.planning import (
    MANUAL_ROUNDS,
    Candidate,
    Holds,
    candidates,
    dry_run,
)
from lakelog_retention.maintenance.removal import Remover
from lakelog_retention.maintenance.segment_infos import SegmentInfos
from lakelog_retention.settings import MaintenanceSettings

_LOG: Final = logging.getLogger("lakelog")


@attrs.frozen
class Cleaning:
    """The collaborators of a round with a cleaner."""

    cleaner: Cleaner
    infos: SegmentInfos
    holds: Holds
    remover: Remover
    following: IndexTrimmer


class MaintenanceRounds:
    """Disk-space maintenance of one open store, in the process with its services."""

    def __init__(
        self,
        settings: MaintenanceSettings,
        clock: Clock,
        health: Health,
        cleaning: Cleaning | None,
        disks: Disks | None,
        go_on: Callable[[], None],
        delete_unused: Callable[[], list[str]],
    ) -> None:
        """Keep the collaborators.

        :param go_on: called after each round, to resume dispatching that a full disk stopped
        :param delete_unused: removes the queues of unused topics; returns their names
        """
        self._settings = settings
        self._clock = clock
        self._health = health
        self._cleaning = cleaning
        self._disks = disks
        self._go_on = go_on
        self._delete_unused = delete_unused
        self._stop = Event()
        self._one_at_a_time = Lock()
        self._thread = Thread(target=self._run, name="lakelog-maintenance", daemon=True)

    def start(self) -> None:
        """Start the rounds, if there is anything to do; a full disk pauses puts at once."""
        self._see_disks()
        if self._cleaning is not None or self._disks is not None:
            started(self._thread)

    def close(self) -> None:
        """Stop, at the latest after the file being deleted."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._one_at_a_time:
            pass  # wait for a requested round to end

    def disk(self) -> DiskReport | None:
        """Measure the disks; ``None`` without a watcher."""
        return None if self._disks is None else self._disks.look()

    def look(self) -> CleaningReport | None:
        """Report the effect of a requested round now; ``None`` without a cleaner."""
        if self._cleaning is None:
            return None
        with self._one_at_a_time:
            self._check()
            return self._dry_run(self._cleaning)

    def delete_expired(self) -> CleaningReport | None:
        """Run requested rounds until nothing more may be deleted; ``None`` without a cleaner.

        Raises :class:`~lakelog.errors.StoreFailed` if the store has failed.
        """
        if self._cleaning is None:
            return None
        with self._one_at_a_time:
            self._check()
            report = self._clean(self._cleaning, manual=True)
            for _ in range(MANUAL_ROUNDS - 1):
                if report.kept is not None or self._stop.is_set():
                    break
                before, report = report, _joined(report, self._clean(self._cleaning, manual=True))
                if report.deleted == before.deleted:
                    break
            self._go_on()
            return report

    def delete_unused_topics(self) -> list[str]:
        """Remove the queues of topics without remaining records; return the topic names."""
        return self._delete_unused()

    def _check(self) -> None:
        if self._health.failure is not None:
            raise self._health.failed()
        if self._stop.is_set():
            raise StoreClosed("the store is closed")

    def _run(self) -> None:
        wait_ms = self._settings.first_round_ms
        while not self._clock.wait(self._stop, wait_ms):
            self._round()
            wait_ms = self._settings.interval_ms

    def _round(self) -> None:
        with self._one_at_a_time:
            if self._health.failure is not None or self._stop.is_set():
                return  # a failed store changes nothing any more
            try:
                if self._cleaning is not None:
                    self._clean(self._cleaning)
                else:
                    self.disk()
                self._go_on()
            except StoreFailed:
                return  # listeners are notified already
            except Exception:  # noqa: BLE001  # whatever a plugin or a disk does, the next round comes
                _LOG.exception("%s: a round of maintenance failed", self._health.path)

    def _clean(self, cleaning: Cleaning, *, manual: bool = False) -> CleaningReport:
        disk = self._see_disks()
        chosen = self._chosen(cleaning, disk, manual=manual)
        deleted, kept = cleaning.remover.act(chosen, cleaning.holds, self._stop)
        if deleted and disk is not None and disk.state is not DiskState.OK:
            self._see_disks()
        files, topics = cleaning.following.follow()
        return CleaningReport(False, tuple(deleted), kept, cleaning.infos.minimum, files, topics)

    def _see_disks(self) -> DiskReport | None:
        """Check the disks; an error of the watcher must not stop the cleaner."""
        try:
            return self.disk()
        except Exception:  # noqa: BLE001  # a watcher is a plugin: it may raise anything
            _LOG.exception("%s: the disk-space watcher failed", self._health.path)
            return None

    def _dry_run(self, cleaning: Cleaning) -> CleaningReport:
        now_ms = self._clock.now_ms()
        seen = situation(now_ms, self._see_disks(), manual=True)
        infos = cleaning.infos
        return dry_run(cleaning.cleaner, infos.sealed(now_ms), seen, cleaning.holds, infos.minimum)

    def _chosen(
        self, cleaning: Cleaning, disk: DiskReport | None, *, manual: bool
    ) -> list[Candidate]:
        now_ms = self._clock.now_ms()
        infos = cleaning.infos.sealed(now_ms)
        return candidates(cleaning.cleaner, infos, situation(now_ms, disk, manual=manual))


def situation(now_ms: int, disk: DiskReport | None, *, manual: bool) -> CleaningContext:
    """The facts passed to the cleaner."""
    if disk is None:
        return CleaningContext(now_ms, manual=manual)
    log = disk.disks[0] if disk.disks else None
    return CleaningContext(
        now_ms,
        disk.state,
        manual,
        None if log is None else log.free_bytes,
        None if log is None else log.used_ratio,
    )


def _joined(report: CleaningReport, later: CleaningReport) -> CleaningReport:
    """Combine the reports of a round and the next."""
    return CleaningReport(
        report.dry_run,
        report.deleted + later.deleted,
        later.kept,
        later.min_offset,
        report.other_files + later.other_files,
        report.topics + later.topics,
    )
