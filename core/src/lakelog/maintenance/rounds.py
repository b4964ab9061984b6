"""Runs maintenance rounds: check disks, run the cleaner, delete, trim queues and index.

A failed round is logged, and the next one runs all the same. Periodic rounds run in their own
thread, requested rounds in the caller's. A process without the services has
:class:`RemoteMaintenance`: a dry run, and requests.

Segments are deleted from the front, one at a time, so that no crash leaves a gap. The minimum is
raised and published before a file is deleted, so no reader is sent to a missing file. Each deletion
is durable before the next, since an open takes the first file as the start of the log. A file that
could not be deleted is tried again before any other. Queues and index may lag behind the minimum at
any time.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

import attrs

from lakelog import hooks
from lakelog.dispatch import DispatchRunner, NamedDispatcher, forget_topic
from lakelog.errors import (
    DispatchStopped,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreReadOnly,
    raised_by_handler,
)
from lakelog.files.preallocation import MakingFailed
from lakelog.format.layout import CONSUMEQUEUE_DIR, INDEX_DIR
from lakelog.format.properties import REPAIRED_TOPIC
from lakelog.lazy import cached_property
from lakelog.log.commit_log import CommitLog
from lakelog.log.health import Health
from lakelog.log.store_directory import StoreDirectory
from lakelog.maintenance import planning
from lakelog.maintenance.planning import Candidate
from lakelog.processes.positions import Positions
from lakelog.processes.shared_page import SharedPage
from lakelog.registry.registry import Events
from lakelog.runtime.locks import LockFreeEvent, Mutex
from lakelog.runtime.threads import started
from lakelog.settings.effective import MaintenanceSettings

_LOG: Final = logging.getLogger("lakelog")


@attrs.define(eq=False, repr=False)
class Remover:
    """Deletes the cleaner's choices; for one thread at a time.

    :param path_of: returns the path of the segment that starts at an offset
    """

    _log: CommitLog
    _events: Events
    _path_of: Callable[[int], Path]
    _clock: hooks.Clock
    _pace: hooks.DeletionRate
    _left: Candidate | None = attrs.field(default=None, init=False)

    def act(
        self, chosen: Sequence[Candidate], holds: planning.RetentionHolds, stop: LockFreeEvent
    ) -> tuple[list[hooks.Deleted], hooks.KeptSegment | None]:
        """Delete at most one batch; return the deleted segments, and the one that stopped it."""
        deleted: list[hooks.Deleted] = []
        if self._left is not None:
            left, why = self._left, self._finish(self._left)
            if why is not None:
                first, name = self._log.segments.first_offset, left.info.start_offset
                return deleted, hooks.KeptSegment(
                    first, f"the file of {name} cannot be deleted: {why}"
                )
            deleted.append(left.deleted())
        for each in chosen[: self._pace.batch_max]:
            if deleted and self._clock.wait(stop, self._pace.interval_ms):
                break
            why = self._held(each, holds)
            if why is None:
                why = self._delete(each)
            if why is not None:
                return deleted, hooks.KeptSegment(each.info.start_offset, why)
            deleted.append(each.deleted())
        return deleted, None

    def _held(self, candidate: Candidate, holds: planning.RetentionHolds) -> str | None:
        """The reason to stay; hooks of plugins run last, since they may act on the segment."""
        start = candidate.info.start_offset
        why = holds(candidate)
        if why is not None:
            return why
        segments = self._log.segments
        if not segments.is_durable(start):  # a sync may be using its file
            self._log.sync()
        if start != segments.first_offset:
            return f"the log begins at {segments.first_offset} now"
        if not segments.is_durable(start):
            return "it is not durable yet"
        return self._events.segment_deleting(self._path_of(start), start)

    def _delete(self, candidate: Candidate) -> str | None:
        """Delete it; return why its file remains, if it does."""
        start = candidate.info.start_offset
        _log_deletion(candidate, self._path_of(start))
        self._log.positions.minimum = candidate.end_offset
        self._log.segments.exclude_first()
        self._left = candidate
        why = self._finish(candidate)
        return None if why is None else f"its file cannot be deleted: {why}"

    def _finish(self, left: Candidate) -> str | None:
        """Remove the file that the minimum has passed already; return the error, if any."""
        start = left.info.start_offset
        try:
            self._log.segments.remove(start)
        except MakingFailed as error:  # a later deletion could become durable before this one
            raise self._log.health.fail(error.cause) from error
        except OSError as error:
            _LOG.warning("%s; it is tried again in the next round", error)
            return str(error)
        self._left = None
        self._events.segment_deleted(self._path_of(start), start)
        return None


def _log_deletion(candidate: Candidate, path: Path) -> None:
    """Log the deletion; as an error if pins still needed the messages."""
    info = candidate.info
    if info.pinned_by:
        _LOG.error(
            "%s is deleted although %s had not read it yet (maintenance.override_pins): offsets "
            "%d to %d are lost for them; %s",
            path,
            ", ".join(info.pinned_by),
            info.start_offset,
            candidate.end_offset,
            candidate.reason,
        )
    else:
        _LOG.info("%s is deleted: %s", path, candidate.reason)


@attrs.define(eq=False)
class IndexTrimmer:
    """Queues and index of a log, as maintenance uses them.

    :ivar forget_unused: removes the queues of topics without remaining records and returns the
        names; called with the dispatchers while dispatching is paused. ``None`` keeps such queues
    """

    _reput: DispatchRunner
    _positions: Positions
    _forget_unused: Callable[[Sequence[NamedDispatcher]], Sequence[str]] | None = None
    _done: int = -1

    def follow(self) -> tuple[int, tuple[str, ...]]:
        """Remove files wholly below the minimum; return the number of files, and the topics.

        A file that cannot be removed is logged, and tried again with the next segment.
        """
        minimum = self._positions.minimum
        if self._done == minimum or self._reput.failure is not None:
            return 0, ()
        removed = 0
        with self._reput.paused() as dispatchers:
            for each in dispatchers:
                removed += _remove(each, minimum)
            forget = self._forget_unused
            topics = () if forget is None else tuple(forget(dispatchers))
        self._done = minimum
        return removed, topics


def _remove(named: NamedDispatcher, minimum: int) -> int:
    dispatcher = named.dispatcher
    if not isinstance(dispatcher, hooks.FrontRemover):
        return 0
    try:
        return dispatcher.remove_before(minimum)
    except (OSError, StoreError) as error:
        _LOG.warning("%s: files before offset %d were not removed: %s", named.name, minimum, error)
        return 0


def delete_unused(log: CommitLog, dispatchers: Sequence[NamedDispatcher]) -> list[str]:
    """Remove the queues of topics without remaining records; return the topic names.

    Dispatching must be paused; ``dispatchers`` come from ``DispatchRunner.paused``. The tombstone
    ends at ``dispatched``: records that are dispatched later create the queues again.
    """
    readers = [
        each.dispatcher for each in dispatchers if isinstance(each.dispatcher, hooks.QueueReader)
    ]
    removed = unused_topics(readers[0], log.positions.minimum) if readers else []
    if removed:
        log.sync()  # a tombstone must not reach beyond the durable end
    for topic in removed:
        forget_topic(dispatchers, topic, log.positions.dispatched)
    return removed


def unused_topics(reader: hooks.QueueReader, minimum: int) -> list[str]:
    """Topics with queues that refer to no record still in the log.

    :param minimum: first byte of the log
    """
    used: dict[str, bool] = {}
    for topic, queue_id in reader.queues():
        bounds = reader.bounds((topic, queue_id), minimum)
        used[topic] = used.get(topic, False) or (bounds is not None and bounds[0] < bounds[1])
    used.pop(REPAIRED_TOPIC, None)  # it cannot be removed
    return sorted(topic for topic, has_some in used.items() if not has_some)


def watched(path: Path, commitlog: Path) -> tuple[Path, ...]:
    """The paths of a store that may be on separate disks: log, queues, index, the rest."""
    inside = (path / name for name in (CONSUMEQUEUE_DIR, INDEX_DIR) if (path / name).is_dir())
    return tuple(dict.fromkeys((commitlog, *inside, path)))


def paths_of(directory: StoreDirectory) -> tuple[Path, ...]:
    """The paths of an open store that may be on separate disks."""
    return watched(directory.path, directory.commitlog)


@attrs.define(eq=False, repr=False)
class Disks:
    """The disks of one open store; thread-safe.

    :param paths: the paths to check; the log's is first
    :param set_pause: publishes the reason for a pause of puts to other processes; ``None`` ends it
    """

    _watcher: hooks.DiskWatcher
    _paths: Callable[[], Sequence[Path]]
    _health: Health
    _events: Events
    _set_pause: Callable[[str | None], None]
    _report: hooks.DiskReport | None = attrs.field(default=None, init=False)
    _lock: Mutex = attrs.field(factory=Mutex, init=False)

    def look(self) -> hooks.DiskReport:
        """Check the disks; pause or resume puts accordingly."""
        with self._lock:
            paths = self._paths()
            before = hooks.DiskState.OK if self._report is None else self._report.state
            report = self._report = self._watcher.observe(paths)
            if report.state is hooks.DiskState.STOP_WRITING:
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
        if report.state is hooks.DiskState.STOP_WRITING:
            return True
        log = report.disks[0] if report.disks else None
        if log is None or not log.keep_free_bytes:
            return False
        return _free_bytes(log.path) - size_bytes < log.keep_free_bytes


def _free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _refusal(report: hooks.DiskReport) -> str:
    why = report.reason or "reported by its watcher"
    return (
        f"the disk is too full to take messages ({why}); make room, or let a cleaner delete old "
        "segments; puts are accepted again once there is enough room"
    )


@attrs.frozen
class Cleaning:
    """The collaborators of a round with a cleaner."""

    cleaner: hooks.Cleaner
    infos: planning.SegmentInfos
    holds: planning.RetentionHolds
    remover: Remover
    following: IndexTrimmer


class MaintenanceRounds:
    """Disk-space maintenance of one open store, in the process with its services.

    Segments are deleted from the front, one at a time, each durably before the next. The minimum is
    raised and published before the file is deleted. A segment stays while it is not durable or not
    dispatched, or while a pin or a plugin keeps it.

    :param log: the log as all processes see it
    :param commit_log: its segments are deleted, and its health pauses the puts of this process
    :param page: pauses the puts of the other processes
    :param reput: is paused and resumed
    """

    def __init__(
        self,
        settings: MaintenanceSettings,
        log: planning.MaintainedLog,
        commit_log: CommitLog,
        page: SharedPage,
        reput: DispatchRunner,
    ) -> None:
        self._settings = settings
        self._clock = clock = log.clock or hooks.Clock()
        self._log = commit_log
        self._health = health = commit_log.health
        self._reput = reput
        watcher, cleaner = log.disk_watcher(), log.cleaner()
        self._disks: Disks | None = None
        if watcher is not None:
            paths = partial(paths_of, log.directory)
            self._disks = Disks(watcher, paths, health, log.events, page.set_pause)
            commit_log.segments.hold_back(self._disks.is_scarce)
        self._cleaning: Cleaning | None = None
        if cleaner is not None:
            self._cleaning = _cleaning(settings, log, commit_log, reput, cleaner, clock)
        self._stop = LockFreeEvent()
        self._one_at_a_time = Mutex()
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

    def disk(self) -> hooks.DiskReport | None:
        """Measure the disks; ``None`` without a watcher."""
        return None if self._disks is None else self._disks.look()

    def look(self) -> hooks.CleaningReport | None:
        """Report the effect of a requested round now; ``None`` without a cleaner."""
        if self._cleaning is None:
            return None
        with self._one_at_a_time:
            self._check()
            return self._dry_run(self._cleaning)

    def delete_expired(self) -> hooks.CleaningReport | None:
        """Run requested rounds until nothing more may be deleted; ``None`` without a cleaner.

        Raises :class:`~lakelog.errors.StoreFailed` if the store has failed.
        """
        if self._cleaning is None:
            return None
        with self._one_at_a_time:
            self._check()
            report = self._clean(self._cleaning, manual=True)
            for _ in range(planning.MANUAL_ROUNDS - 1):
                if report.kept is not None or self._stop.is_set():
                    break
                before, report = report, _joined(report, self._clean(self._cleaning, manual=True))
                if report.deleted == before.deleted:
                    break
            dispatch_again(self._reput)
            return report

    def delete_unused_topics(self) -> list[str]:
        """Remove the queues of topics without remaining records; return the topic names."""
        with self._reput.paused() as dispatchers:
            return delete_unused(self._log, dispatchers)

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
                dispatch_again(self._reput)
            except StoreFailed:
                return  # listeners are notified already
            except Exception:  # noqa: BLE001  # whatever a plugin or a disk does, the next round comes
                _LOG.exception("%s: a round of maintenance failed", self._health.path)

    def _clean(self, cleaning: Cleaning, *, manual: bool = False) -> hooks.CleaningReport:
        disk = self._see_disks()
        chosen = self._chosen(cleaning, disk, manual=manual)
        deleted, kept = cleaning.remover.act(chosen, cleaning.holds, self._stop)
        if deleted and disk is not None and disk.state is not hooks.DiskState.OK:
            self._see_disks()
        files, topics = cleaning.following.follow()
        return hooks.CleaningReport(
            False, tuple(deleted), kept, cleaning.infos.minimum, files, topics
        )

    def _see_disks(self) -> hooks.DiskReport | None:
        """Check the disks; an error of the watcher must not stop the cleaner."""
        try:
            return self.disk()
        except Exception as error:  # a watcher is a plugin: it may raise anything
            if raised_by_handler(error):
                raise
            _LOG.exception("%s: the disk-space watcher failed", self._health.path)
            return None

    def _dry_run(self, cleaning: Cleaning) -> hooks.CleaningReport:
        now_ms = self._clock.now_ms()
        seen = situation(now_ms, self._see_disks(), manual=True)
        infos = cleaning.infos
        return planning.dry_run(
            cleaning.cleaner, infos.sealed(now_ms), seen, cleaning.holds, infos.minimum
        )

    def _chosen(
        self, cleaning: Cleaning, disk: hooks.DiskReport | None, *, manual: bool
    ) -> list[planning.Candidate]:
        now_ms = self._clock.now_ms()
        infos = cleaning.infos.sealed(now_ms)
        return planning.candidates(cleaning.cleaner, infos, situation(now_ms, disk, manual=manual))


def situation(now_ms: int, disk: hooks.DiskReport | None, *, manual: bool) -> hooks.CleaningContext:
    """The facts passed to the cleaner."""
    if disk is None:
        return hooks.CleaningContext(now_ms, manual=manual)
    log = disk.disks[0] if disk.disks else None
    return hooks.CleaningContext(
        now_ms,
        disk.state,
        manual,
        None if log is None else log.free_bytes,
        None if log is None else log.used_ratio,
    )


def _joined(report: hooks.CleaningReport, later: hooks.CleaningReport) -> hooks.CleaningReport:
    """Combine the reports of a round and the next."""
    return hooks.CleaningReport(
        report.dry_run,
        report.deleted + later.deleted,
        later.kept,
        later.min_offset,
        report.other_files + later.other_files,
        report.topics + later.topics,
    )


@attrs.define(slots=False, eq=False)
class RemoteMaintenance:
    """Maintenance by another process: this one only reports the segments it would delete."""

    _log: planning.MaintainedLog
    _settings: MaintenanceSettings
    _clock: hooks.Clock

    @cached_property
    def _cleaner(self) -> hooks.Cleaner | None:
        return self._log.cleaner()

    @cached_property
    def _watcher(self) -> hooks.DiskWatcher | None:
        return self._log.disk_watcher()

    def disk(self) -> hooks.DiskReport | None:
        """Measure the disks; ``None`` without a watcher."""
        watcher = self._watcher
        return None if watcher is None else watcher.observe(paths_of(self._log.directory))

    def look(self) -> hooks.CleaningReport | None:
        """Report the segments that would be deleted; ``None`` without a cleaner."""
        cleaner = self._cleaner
        return None if cleaner is None else self._look(cleaner)

    def _look(self, cleaner: hooks.Cleaner) -> hooks.CleaningReport:
        now_ms = self._clock.now_ms()
        infos = planning.SegmentInfos(self._log, self._settings.pin_expires_after_ms)
        holds = planning.RetentionHolds(
            lambda: self._log.reader.max_offset,
            self._settings.override_pins,
        )
        seen = situation(now_ms, self.disk(), manual=True)
        return planning.dry_run(cleaner, infos.sealed(now_ms), seen, holds, infos.minimum)

    def delete_expired(self) -> hooks.CleaningReport | None:
        """Have the process with the services delete."""
        reply = self._ask("delete_expired")
        return None if reply is None else _report_of(reply)

    def delete_unused_topics(self) -> list[str]:
        """Have the process with the services delete."""
        return list(self._ask("delete_unused_topics"))

    def _ask(self, method: str) -> Any:
        if self._log.ask is None:
            raise StoreReadOnly(
                "the store is open for reading; open it with mode='write'",
                path=self._log.directory.path,
            )
        return self._log.ask(method)

    def close(self) -> None:
        """Do nothing: no thread runs."""


def _report_of(reply: Sequence[Any]) -> hooks.CleaningReport:
    """A report from its JSON values, in the order of its fields."""
    report = hooks.CleaningReport(*reply)
    deleted = (hooks.Deleted(*each) for each in report.deleted)
    return report._replace(
        deleted=tuple(each._replace(pinned_by=tuple(each.pinned_by)) for each in deleted),
        kept=None if report.kept is None else hooks.KeptSegment(*report.kept),
        topics=tuple(report.topics),
    )


_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


def _cleaning(
    settings: MaintenanceSettings,
    log: planning.MaintainedLog,
    commit_log: CommitLog,
    reput: DispatchRunner,
    cleaner: hooks.Cleaner,
    clock: hooks.Clock,
) -> Cleaning:
    forget = partial(delete_unused, commit_log) if cleaner.remove_empty_queues else None
    return Cleaning(
        cleaner,
        planning.SegmentInfos(log, settings.pin_expires_after_ms),
        planning.RetentionHolds(lambda: reput.offset, settings.override_pins),
        Remover(commit_log, log.events, log.directory.segment, clock, cleaner.pace),
        IndexTrimmer(reput, commit_log.positions, forget),
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
