"""The open log of an appending process, alone or beside others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from mmap import PAGESIZE
from typing import Final

import attrs

from lakelog.errors import LakelogError, StoreLocked
from lakelog.files.preallocation import Preallocator, SegmentMaker
from lakelog.files.segment_files import segment_files
from lakelog.hooks import LeadingReplicator
from lakelog.hooks.kinds import StoreSettings
from lakelog.log.appender import Appender
from lakelog.log.commit_log import CommitLog, VouchedEnd
from lakelog.log.health import Health
from lakelog.log.segments import Segments
from lakelog.log.store_directory import StoreDirectory
from lakelog.processes.locks import ProcessLock
from lakelog.processes.membership import LEAVE_SECONDS, Membership, MemberWatch
from lakelog.processes.positions import PageWaiter, Positions
from lakelog.processes.queue_table import QueueTable
from lakelog.processes.shared_page import SharedPage
from lakelog.store.strategies import Strategies

MAKING: Final = 10
"""Offset of the byte of ``lock`` that is locked while a segment is created."""
_LOG: Final = logging.getLogger("lakelog")


@attrs.define(eq=False, repr=False, kw_only=True)
class OpenLog:
    """The objects that one process needs to append.

    :ivar lock: the membership of this process in the store
    """

    directory: StoreDirectory
    core: StoreSettings
    strategies: Strategies
    lock: Membership
    page: SharedPage
    positions: Positions
    segments: Segments
    log: CommitLog
    appender: Appender
    health: Health
    watch: MemberWatch

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or its opening undone."""
        return not self.lock.is_open

    def part(self) -> bool:
        """Begin to leave; return whether this is the last process, which closes the store."""
        self.watch.close()
        if not self.lock.is_parting:
            try:
                self.lock.part(LEAVE_SECONDS)
            except (StoreLocked, OSError) as error:
                _LOG.warning("%s: the next open has to recover it: %s", self.directory.path, error)
        return self.lock.is_alone

    def leave(self) -> None:
        """Close the strategies, then the files; the other processes continue.

        The flush strategy makes the remaining bytes durable.
        """
        try:
            self.appender.close()
        finally:
            self.let_go(keep=True)

    def let_go(self, *, keep: bool) -> None:
        """Close files and release the membership; further calls do nothing.

        :param keep: whether other processes have the store open
        """
        if not self.is_closed:
            try:
                self.segments.close(keep=keep)
            finally:
                self.lock.leave()


@attrs.define(eq=False, repr=False, kw_only=True)
class LogMaker:
    """Builds an :class:`OpenLog` from a valid shared page.

    :ivar undo: undoes the steps so far if opening fails
    :ivar replica: whether the log is a replica's: no sync may then move the durable end until the
        receiver vouches for more bytes
    """

    directory: StoreDirectory
    core: StoreSettings
    strategies: Strategies
    health: Health
    lock: Membership
    page: SharedPage
    undo: ExitStack
    replica: bool = False

    def segment_maker(self) -> SegmentMaker:
        """Build the creator of segments for this store."""
        directory = self.directory
        maker = SegmentMaker(
            directory.files,
            directory.commitlog,
            directory.temporary(),
            self.core.segment_size_bytes,
            self.core.allocation_step_bytes,
            max(PAGESIZE, self.strategies.writer.traits.alignment_bytes),
            ProcessLock(self.lock.file, MAKING).run,
        )
        maker.files.make_dir(maker.temporary, durable=False)
        return maker

    def segments(self, maker: SegmentMaker, *, alone: bool) -> Segments:
        """Open the segments; if ``alone``, files behind the end are kept for later rolls."""
        positions, size = Positions(self.page.words), self.core.segment_size_bytes
        first, end = positions.minimum, positions.appended
        active = max(first, end - end % size)
        preallocator = Preallocator(maker, self.core.preallocate, self.health.fail)
        if alone:
            for segment in segment_files(maker.directory, maker.files.list(maker.directory)):
                if segment.start_offset > active or (segment.start_offset == active == end):
                    preallocator.add_ready(segment.start_offset, maker.adopt(segment.start_offset))
        elif not maker.is_there(active):  # another process is rolling to this segment
            active -= size
        made = Segments(
            maker,
            preallocator,
            self.strategies.writer,
            first,
            active,
            end - active,
            positions,
            is_there=not alone,
        )
        self.undo.callback(quietly, made.close, keep=not alone)
        if positions.appended > made.active_offset:
            made.prepare_next()
        return made

    def make(self, segments: Segments) -> OpenLog:
        """Build the log, start its flush strategy and replicator, and prepare the watch thread."""
        directory, strategies, page = self.directory, self.strategies, self.page
        positions = Positions(page.words)
        table = QueueTable.join(directory.files, directory.path, page.words)
        log = CommitLog(
            segments,
            page,
            positions,
            table,
            self.lock.file,
            strategies.append,
            self.health,
            self.core.os_page_cache_busy_timeout_ms,
        )
        if self.replica:
            flushed, flushed_ms = positions.flushed, positions.flushed_timestamp_ms
            log.vouch(VouchedEnd(flushed, flushed_ms, lambda _: None))
        log.sleeper = PageWaiter(directory.files, directory.path)
        self.undo.callback(quietly, strategies.flush.close)
        with strategies.blaming("flush", "start()"):
            strategies.flush.start(log)
        if strategies.replicator is not None:
            self.undo.callback(quietly, strategies.replicator.close)
            with strategies.blaming("replicator", "start()"):
                strategies.replicator.start(log)
        appender = Appender(
            log,
            strategies.append,
            strategies.flush,
            strategies.replicator,
            self.health,
            strategies.flush_failed,
            strategies.replicator_failed,
            raises_late=self.core.on_late == "raise",
        )
        return OpenLog(
            directory=directory,
            core=self.core,
            strategies=strategies,
            lock=self.lock,
            page=page,
            positions=positions,
            segments=segments,
            log=log,
            appender=appender,
            health=self.health,
            watch=MemberWatch(page, self.lock, log.let_go),
        )


def lead(strategies: Strategies, undo: ExitStack) -> None:
    """Start sending copies, if the replicator does; for the process that gets the services.

    Raises :class:`~lakelog.errors.LakelogError`, see ``LeadingReplicator``.
    """
    replicator = strategies.replicator
    if isinstance(replicator, LeadingReplicator):
        undo.callback(quietly, replicator.stop_leading)
        with strategies.blaming("replicator", "lead()"):
            replicator.lead()


def quietly(undo: Callable[..., object], *arguments: object, **named: object) -> None:
    """Run one undo step without raising, so that the first error of opening is reported."""
    with suppress(LakelogError, OSError):
        undo(*arguments, **named)
