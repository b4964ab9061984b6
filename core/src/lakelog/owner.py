"""Opens a directory for its owner: look, lock, look again, recover, then wire everything.

What goes wrong before the recovery changes nothing, but for empty folders; what goes wrong later
leaves a directory that the next open recovers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from mmap import PAGESIZE
from typing import Final, TypeAlias

import attrs

from lakelog.appender import Appender
from lakelog.bodynote import note_callback, warn_of_others
from lakelog.bounds import OwnedBounds
from lakelog.checkpoint import CheckpointKeeper, StoreCheckpoint, read_checkpoint, write_checkpoint
from lakelog.cleanstop import forget_clean_stop
from lakelog.commitlog import CommitLog
from lakelog.directory import StoreDirectory
from lakelog.dispatching import Dispatching, Named, resume
from lakelog.dispatchlock import DispatchLock
from lakelog.errors import DispatchStopped, LakelogError
from lakelog.files import FileSystem
from lakelog.health import Health
from lakelog.identity import StoreIdentity, make_identity, read_identity
from lakelog.interfaces import QueueReader
from lakelog.layout import ABORT_FILE, LOCK_FILE, OWN_DIR
from lakelog.logreader import LogReader
from lakelog.ownership import OwnerLock, remove_abort, write_abort
from lakelog.pages.publishing import Publisher
from lakelog.pages.sharedpage import TABLE_GENERATION, SharedPage, State
from lakelog.positions import Positions
from lakelog.preallocate import Preallocator, SegmentMaker
from lakelog.recovery.ahead import Ahead
from lakelog.recovery.damagefile import read_damage
from lakelog.recovery.examine import Plan, Progress, examine
from lakelog.recovery.gaps import fill_gaps
from lakelog.recovery.mend import mend
from lakelog.recovery.phases import COMPLETING, READING, begin
from lakelog.recovery.report import RecoveryReport
from lakelog.recovery.unchanged import note_clean_stop
from lakelog.reput import Dispatches, Reput, Signal
from lakelog.segmentdir import segment_files
from lakelog.segments import Segments
from lakelog.settings.model import StoreSettings
from lakelog.shared.queuetable import QueueTable, remove_tables
from lakelog.source import ViewSource
from lakelog.strategies import Strategies
from lakelog.swap import REBUILD_DIR, remove_tree

_LOG: Final = logging.getLogger("lakelog")


@attrs.frozen
class OwnedLog:
    """What an owner holds while its store is open.

    :ivar dispatch_lock: says that queues and index are written here, if they are
    :ivar dispatchers: none where another process has them; ``reput.paused()`` gives them here
    """

    directory: StoreDirectory
    core: StoreSettings
    identity: StoreIdentity
    lock: OwnerLock
    dispatch_lock: DispatchLock
    segments: Segments
    positions: Positions
    log: CommitLog
    appender: Appender
    health: Health
    reader: LogReader
    reput: Dispatches
    dispatchers: Sequence[Named]
    checkpoint: CheckpointKeeper
    recovery: RecoveryReport
    publisher: Publisher

    def close(self) -> None:
        """Flush, write the checkpoint, then ``abort`` may go: RocketMQ's clean stop.

        A store that failed keeps ``abort``, so that the next open recovers it; raises
        :class:`~lakelog.errors.StoreFailed` then.
        """
        files, path = self.directory.files, self.directory.path
        self.publisher.tell(State.CLOSING)
        try:
            with ExitStack() as closing:
                closing.callback(self.dispatch_lock.release)
                for each in self.dispatchers:
                    closing.callback(each.dispatcher.close)
                closing.callback(self.reput.close)
                self.appender.close()
            if self.health.failure is not None:
                raise self.health.failed()
            self._write_checkpoint()
            self.segments.close()
            offsets, at = self.log.next_offsets(), self.positions
            note_clean_stop(self.directory, self.core, at.minimum, at.appended, offsets)
            remove_tables(files, path)
            remove_abort(files, path)
        finally:
            self.segments.close()
            self.publisher.close()
            self.dispatch_lock.release()
            self.lock.release()

    def _write_checkpoint(self) -> None:
        self.log.sync()
        self.checkpoint.advance()  # the log is one of its sources


Away: TypeAlias = Callable[[OwnedLog, "DispatchStopped | None"], Dispatches]
"""Lets another process dispatch; told why queues and index are not complete, if they are not."""


def open_owned(  # noqa: PLR0913  # what a store is made of, and four options by name
    directory: StoreDirectory,
    core: StoreSettings,
    strategies: Strategies,
    health: Health,
    checkpoint: CheckpointKeeper,
    arrivals: Signal,
    progress: Progress | None = None,
    *,
    full: bool = False,
    attended: bool = False,
    away: Away | None = None,
) -> OwnedLog:
    """Take over ``directory``, which is new or holds a store, and recover it.

    :param progress: see :mod:`lakelog.recovery.phases`
    :param full: read the whole log
    :param attended: tell others that they can attach, once it returns and somebody listens
    :param away: lets another process dispatch, once queues and index are complete

    Queues and index are complete when it returns, unless a dispatcher fails.
    """
    begun = time.monotonic()
    with ExitStack() as undo:
        for each in strategies.dispatchers:
            undo.callback(each.dispatcher.close)
        lock, is_new = _take(directory, core, undo, attended=attended)
        dispatch_lock = DispatchLock.take(directory.files, directory.path)
        undo.callback(dispatch_lock.release)
        taking = _Taking(directory, core, strategies, health, checkpoint, undo)
        begin(progress, READING)
        ahead = Ahead(directory, core.segment_size_bytes)
        undo.callback(ahead.leave)
        plan = examine(directory, core, progress, full=full, on_unclean=ahead.begin)
        publisher = _publisher(directory, checkpoint, lock, undo)
        publisher.tell(State.RECOVERING)
        ahead.end()
        report = mend(directory, plan, core.segment_size_bytes)
        locks = lock, dispatch_lock
        opened, reput = taking.open(plan, report, locks, arrivals, publisher, is_new=is_new)
        forget_clean_stop(directory.files, directory.path)  # before anything is appended
        _publish(opened)
        begin(progress, COMPLETING)
        reput.complete(progress)
        if reput.failure is None and _keep_queues(strategies.dispatchers):
            lock.tell_followed()
        if away is None or not strategies.dispatchers:
            reput.follow()
        else:
            opened = _sent_away(opened, reput.failure, away)
        undo.pop_all()
    report = attrs.evolve(opened.recovery, seconds=time.monotonic() - begun)
    if not report.clean or report.changed:
        _LOG.info("%s: %s", directory.path, report)
    return attrs.evolve(opened, recovery=report)


def _sent_away(opened: OwnedLog, failure: DispatchStopped | None, away: Away) -> OwnedLog:
    """Close queues and index here, and let another process go on with them."""
    for each in opened.dispatchers:
        each.dispatcher.close()
    opened.dispatch_lock.release()
    return attrs.evolve(opened, reput=away(opened, failure), dispatchers=())


def _publisher(
    directory: StoreDirectory, checkpoint: CheckpointKeeper, lock: OwnerLock, undo: ExitStack
) -> Publisher:
    directory.files.make_dir(directory.path / OWN_DIR)
    publisher = Publisher(directory.files, directory.path, checkpoint)
    undo.callback(publisher.abandon)
    lock.tell_published()
    return publisher


def _publish(opened: OwnedLog) -> None:
    """Let readers and the checkpoint follow from now on."""
    positions = opened.positions
    opened.health.also(opened.publisher.failed)
    opened.checkpoint.ask(
        lambda: StoreCheckpoint(
            physic_timestamp_ms=positions.flushed_timestamp_ms,
            confirm_offset=positions.flushed,
        )
    )
    opened.publisher.start(positions)


def _keep_queues(dispatchers: Sequence[Named]) -> bool:
    return any(isinstance(each.dispatcher, QueueReader) for each in dispatchers)


def _take(
    directory: StoreDirectory, core: StoreSettings, undo: ExitStack, *, attended: bool
) -> tuple[OwnerLock, bool]:
    """Look, lock, look again; the lock, and whether nothing was there."""
    is_new = directory.is_new_or_being_made()
    if not (directory.path / LOCK_FILE).exists():
        directory.check_segments(core.segment_size_bytes)
        directory.files.make_dir(directory.path)
        with suppress(PermissionError):  # an earlier owner may have died between mkdir and sync
            directory.files.sync_dir(directory.path.parent)
    lock = _locked(directory.files, directory, undo)
    if attended:
        lock.tell_attended()
    directory.check_segments(core.segment_size_bytes)
    return lock, directory.is_new() if is_new is None else is_new


def _locked(files: FileSystem, directory: StoreDirectory, undo: ExitStack) -> OwnerLock:
    lock = OwnerLock.take(files, directory.path)
    undo.callback(lock.release)
    return lock


@attrs.frozen
class _Taking:
    """What is needed to take a directory over that was looked at."""

    directory: StoreDirectory
    core: StoreSettings
    strategies: Strategies
    health: Health
    checkpoint: CheckpointKeeper
    undo: ExitStack

    def open(
        self,
        plan: Plan,
        report: RecoveryReport,
        locks: tuple[OwnerLock, DispatchLock],
        arrivals: Signal,
        publisher: Publisher,
        *,
        is_new: bool,
    ) -> tuple[OwnedLog, Reput]:
        """Change what must be changed, then wire everything."""
        directory, strategies, undo = self.directory, self.strategies, self.undo
        maker = self._maker()
        start = resume(strategies.dispatchers, plan.minimum, plan.end_offset)
        start = fill_gaps(directory, plan, strategies.dispatchers, start)
        identity = self._mark(is_new=is_new)
        segments = _segments(maker, self.core, strategies, plan, self.health)
        undo.callback(segments.close)
        positions = self._positions(publisher.page, plan, start, staged=segments.staged)
        log = self._log(segments, publisher.page, positions, locks[0], plan)
        reader = LogReader(
            self._source(segments),
            OwnedBounds(positions),
            lambda: False,  # an owner does not read what another process writes
            decoder=strategies.decoder,
        )
        reput = Reput(
            lambda first, end: reader.pieces(first, end, verify=False),
            Dispatching(directory.path, strategies.dispatchers, start),
            positions,
            arrivals,
        )
        opened = OwnedLog(
            directory,
            self.core,
            identity,
            *locks,
            segments,
            positions,
            log,
            self._appender(log),
            self.health,
            reader,
            reput,
            strategies.dispatchers,
            self.checkpoint,
            attrs.evolve(report, dispatched_from=start),
            publisher,
        )
        return opened, reput

    def _source(self, segments: Segments) -> ViewSource:
        return ViewSource(segments, read_damage(self.directory.files, self.directory.path))

    def _maker(self) -> SegmentMaker:
        directory = self.directory
        directory.files.make_dir(directory.commitlog)
        directory.remove_mark()
        maker = SegmentMaker(
            directory.files,
            directory.commitlog,
            directory.temporary(),
            self.core.segment_size_bytes,
            self.core.allocation_step_bytes,
            max(PAGESIZE, self.strategies.writer.traits.alignment_bytes),
        )
        maker.files.make_dir(maker.temporary)
        _clear(maker.files, maker)
        return maker

    def _mark(self, *, is_new: bool) -> StoreIdentity:
        """Write what says that the store is open."""
        files, path = self.directory.files, self.directory.path
        identity = read_identity(files, path) or make_identity(files, path, new=is_new)
        warn_of_others(files, path, self.core.append)
        if self.strategies.decoder is not None:
            note_callback(files, path, self.core.append)
        if not (path / ABORT_FILE).exists():
            self.undo.callback(_quietly, remove_abort, files, path)  # maybe half written
        write_abort(files, path)
        write_checkpoint(files, path, read_checkpoint(files, path))
        return identity

    def _positions(
        self, page: SharedPage, plan: Plan, dispatched: int, *, staged: bool
    ) -> Positions:
        """Those of the log as it was recovered, in the shared page."""
        page.reset(self.core.segment_size_bytes, {})
        positions = Positions(page.words)
        positions.start(
            plan.minimum,
            plan.end_offset,
            dispatched,
            plan.found.last_timestamp_ms,
            durable=getattr(self.strategies.flush, "waits_for_disk", False),
            staged=staged,
        )
        return positions

    def _log(
        self,
        segments: Segments,
        page: SharedPage,
        positions: Positions,
        lock: OwnerLock,
        plan: Plan,
    ) -> CommitLog:
        if plan.end_offset > segments.active_offset:
            segments.prepare_next()
        files, path = self.directory.files, self.directory.path
        remove_tables(files, path)
        self.undo.callback(_quietly, remove_tables, files, path)
        table = QueueTable.make(files, path, 1, plan.found.next_offsets)
        page.words[TABLE_GENERATION] = table.generation
        return CommitLog(
            segments,
            page,
            positions,
            table,
            lock.file,
            self.strategies.append,
            self.health,
            self.core.os_page_cache_busy_timeout_ms,
        )

    def _appender(self, log: CommitLog) -> Appender:
        strategies = self.strategies
        for each in (strategies.flush, strategies.replicator):
            if each is not None:
                self.undo.callback(_quietly, each.close)
                each.start(log)
        return Appender(
            log,
            strategies.append,
            strategies.flush,
            strategies.replicator,
            self.health,
            strategies.flush_failed,
            strategies.replicator_failed,
        )


def _segments(
    maker: SegmentMaker,
    core: StoreSettings,
    strategies: Strategies,
    plan: Plan,
    health: Health,
) -> Segments:
    """The segments, those behind the end of the log in stock for the next rolls."""
    size, first = core.segment_size_bytes, plan.minimum
    active = max(first, plan.end_offset - plan.end_offset % size)
    position = plan.end_offset - active
    preallocator = Preallocator(maker, core.preallocate, health.fail)
    for segment in segment_files(maker.directory, maker.files.list(maker.directory)):
        if segment.start_offset > active or (segment.start_offset == active and not position):
            preallocator.stock(segment.start_offset, maker.adopt(segment.start_offset))
    return Segments(maker, preallocator, strategies.writer, first, active, position)


def _clear(files: FileSystem, maker: SegmentMaker) -> None:
    """Remove what an earlier run left unfinished."""
    for name, _ in files.list(maker.temporary):
        files.unlink(maker.temporary / name)
    remove_tree(files, maker.temporary / REBUILD_DIR)


def _quietly(undo: Callable[..., object], *arguments: object) -> None:
    """What is told is why the store cannot be opened, and no failure on the way back."""
    with suppress(LakelogError, OSError):
        undo(*arguments)
