"""The process with the services of a store: it checks, locks, recovers and builds their parts.

:func:`owner_parts` makes the strategies, and takes over the directory: check, lock, check again,
recover. An error before recovery changes nothing except empty folders. An error after that leaves
a directory that the next open recovers. Then the maintenance of disk space is added.

A replica is a store whose log is a copy of a master's, received in place of puts. Its receiver
appends only whole, checked records, so that the log always ends at a record, and readers, queues
and index work as in any store. Bytes count as durable once they are synced here and the receiver
vouches that the master cannot lose them. The checkpoint stores their end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from lakelog import hooks
from lakelog.dispatch import DispatchCursor, DispatchRunner, NamedDispatcher, resume
from lakelog.errors import NotOpened, SettingsError, StoreError, StoreReadOnly
from lakelog.files import identity
from lakelog.files.checkpoint import (
    CheckpointKeeper,
    StoreCheckpoint,
    read_checkpoint,
    write_checkpoint,
)
from lakelog.files.filesystem import NO_RIGHTS, FileSystem, RealFileSystem, remove_tree
from lakelog.format.layout import ABORT_FILE, LOCK_FILE, OWN_DIR, REBUILD_DIR
from lakelog.format.record_batch import Blank, Damage
from lakelog.hooks.kinds import StoreSettings
from lakelog.log.commit_log import VouchedEnd
from lakelog.log.health import Health
from lakelog.log.log_reader import LogReader
from lakelog.log.sources import OwnedBounds, ViewSource, read_damage
from lakelog.log.store_directory import StoreDirectory
from lakelog.processes import shared_page
from lakelog.processes.membership import ALONE, Membership
from lakelog.processes.ownership import remove_abort, write_abort
from lakelog.processes.positions import PageWaiter, Positions, Publisher
from lakelog.processes.queue_table import QueueTable, remove_tables
from lakelog.recovery.clean_stop import forget_clean_stop, note_clean_stop, unread_plan
from lakelog.recovery.report import (
    COMPLETING,
    READING,
    Progress,
    RecoveryPlan,
    RecoveryReport,
    begin,
)
from lakelog.settings.effective import MAINTENANCE
from lakelog.store.agreeing import shared_settings
from lakelog.store.open_log import LogMaker, OpenLog, lead, quietly
from lakelog.store.parts import OpenRequest, RefusingWriter, RoleParts
from lakelog.store.requests import Answering, Managing
from lakelog.store.strategies import Strategies, make_archive, make_strategies

if TYPE_CHECKING:
    from lakelog.format.record_batch import RecordBatch
    from lakelog.maintenance.rounds import MaintenanceRounds

FILLED_BY_MASTER: Final = "the store is a replica, which only its master fills"


def is_replica(
    files: FileSystem, path: Path, replicator: object, *, wanted: bool | None, recovers: bool
) -> bool:
    """Whether to open the store as a replica; checks that settings and files agree.

    :param wanted: whether the caller requires a replica; ``None`` if the settings decide
    :param recovers: whether the store is opened for its recovery only

    Raises :class:`~lakelog.errors.SettingsError` and :class:`~lakelog.errors.StoreReadOnly`.
    """
    state, is_receiver = identity.read_replica(files, path), isinstance(replicator, hooks.Receiver)
    if recovers:
        return state is not None
    if is_receiver and wanted is False:
        raise SettingsError(
            "this replicator fills a replica; open the store with mode='replica'", key="replicator"
        )
    if is_receiver:
        return True
    if state is not None:
        raise StoreReadOnly(
            f"it is a replica of {state.source}, and only that appends to it; open it with "
            "mode='read', or continue it with `lakelog replicate`; `lakelog promote` makes it a "
            "store of its own",
            path=path,
        )
    if wanted:
        raise SettingsError(
            "mode='replica' needs a replicator that receives, such as 'rocketmq-ha' with "
            "role = 'slave'; it is in lakelog-replication",
            key="replicator",
        )
    return False


def end_cut(files: FileSystem, path: Path) -> None:
    """Remove the noted cut: log, queues and index are cut; called before the first append."""
    state = identity.read_replica(files, path)
    if state is not None and state.cut is not None:
        identity.write_replica(files, path, state._replace(cut=None))


def replica_log(owned: OwnedStore) -> hooks.ReplicaLog:
    """The log of an open replica, for its receiver."""

    def store(end: int) -> None:
        owned.checkpoint.advance(StoreCheckpoint(confirm_offset=end))

    def records(start: int, end: int) -> Iterator[RecordBatch]:
        for piece in owned.reader.pieces(start, end, verify=False):
            if not isinstance(piece, Blank | Damage):
                yield piece

    return hooks.ReplicaLog(
        log=owned.log,
        last_record=owned.last_record,
        last_timestamp_ms=owned.positions.words[shared_page.LAST_TIMESTAMP],
        view=owned.segments.view,
        records=records,
        append=owned.log.receive,
        sync=owned.log.sync_received,
        vouch=lambda end, timestamp_ms: owned.log.vouch(VouchedEnd(end, timestamp_ms, store)),
        fail=owned.health.fail,
    )


_LOG: Final = logging.getLogger("lakelog")


@attrs.define(eq=False, repr=False, kw_only=True)
class OwnedStore(OpenLog):
    """The log of the process that has the services of its store.

    :ivar reader: reads the log
    :ivar reput: dispatches the log
    :ivar checkpoint: the only writer of the store's checkpoint
    :ivar recovery: the report of the recovery at open
    :ivar publisher: publishes the owner's state in the shared page
    :ivar last_record: start of the last record at open, in bytes of the log; -1 if unknown
    """

    reader: LogReader
    reput: DispatchRunner
    checkpoint: CheckpointKeeper
    recovery: RecoveryReport
    publisher: Publisher
    last_record: int = attrs.field(default=-1, init=False)

    @property
    def dispatchers(self) -> Sequence[NamedDispatcher]:
        """The dispatchers in their order; ``reput.paused()`` returns them for changes."""
        return self.strategies.dispatchers

    def close(self) -> None:
        """Flush, write the checkpoint, then remove ``abort``: RocketMQ's clean stop.

        If other processes have the store open, they continue, and one takes the services. If the
        store has failed, ``abort`` stays, so that the next open recovers it, and
        :class:`~lakelog.errors.StoreFailed` is raised. Raises ``OSError``.
        """
        if self.is_closed:
            return
        alone = self.part()
        if alone:
            self.publisher.set_state(shared_page.OwnerState.CLOSING)
        try:
            with self._end_of_dispatching():
                self.appender.close()
            if self.health.failure is not None:
                raise self.health.failed()
            self._write_checkpoint()
            if alone:
                self._stop_cleanly()
        finally:
            if alone:
                self.publisher.close()
            self.let_go(keep=not alone)

    def give_up(self) -> None:
        """Release the services to another process; this one continues to append.

        Raises the errors of dispatchers and checkpoint; the services are released all the same. The
        next process with the services dispatches again from the log.
        """
        try:
            self._end_of_dispatching().close()
            self.checkpoint.advance()
        finally:
            if isinstance(self.strategies.replicator, hooks.LeadingReplicator):
                self.strategies.replicator.stop_leading()
            self.lock.drop_services()

    def _end_of_dispatching(self) -> ExitStack:
        closing = ExitStack()
        for each in self.dispatchers:
            closing.callback(each.dispatcher.close)
        closing.callback(self.reput.close)
        return closing

    def _stop_cleanly(self) -> None:
        files, path = self.directory.files, self.directory.path
        self.segments.close()
        self.segments.remove_unused()
        offsets, at = self.log.table.snapshot(), self.positions
        note_clean_stop(self.directory, self.core, at.minimum, at.appended, offsets)
        remove_tables(files, path)
        remove_abort(files, path)

    def _write_checkpoint(self) -> None:
        if self.log.sync() < self.log.syncable and self.lock.is_alone:
            raise StoreError(  # closed by a signal handler, inside the sync that it would wait for
                "closed in the middle of a sync of the same thread; the next open recovers it",
                path=self.directory.path,
            )
        if self.page.words[shared_page.INTENT_END] and self.lock.is_alone:
            raise StoreError(
                "the bytes of a refused append are still behind the end of the log, as there is no "
                "room to overwrite them; the next open recovers it",
                path=self.directory.path,
            )
        self.log.sync_received()
        self.checkpoint.advance()  # the log is one of its sources


def open_owned(  # noqa: PLR0913  # the parts of a store, and two options by name
    prepared: OpenRequest,
    directory: StoreDirectory,
    strategies: Strategies,
    health: Health,
    checkpoint: CheckpointKeeper,
    settings: Mapping[str, Any],
    progress: Progress | None = None,
    *,
    full: bool = False,
    replica: bool = False,
) -> OwnedStore:
    """Take over a new or existing store in ``directory`` and recover it.

    :param settings: the settings shared by all processes of the store; or, under the key ``ALONE``,
        the reason why no other process may join
    :param progress: see :mod:`lakelog.recovery.report`
    :param full: read the whole log
    :param replica: whether its log is a copy of a master's

    Queues and index are complete on return, unless a dispatcher fails.

    Raises :class:`~lakelog.errors.StoreError`, the errors of the strategies, and ``OSError``.
    """
    begun, alone, core = time.monotonic(), settings.get(ALONE), prepared.settings.core
    with ExitStack() as undo:
        for each in strategies.dispatchers:
            undo.callback(each.dispatcher.close)
        lock, is_new = _take(directory, core, undo, alone)
        lead(strategies, undo)
        if isinstance(strategies.replicator, hooks.Receiver):
            with strategies.blaming("replicator", "begin()"):
                strategies.replicator.begin(directory.commitlog)
        begin(progress, READING)
        plan, act = _examined(directory, core, progress, undo, full=full)
        directory.files.make_dir(directory.path / OWN_DIR)
        publisher = Publisher(directory.files, directory.path, checkpoint)
        undo.callback(publisher.abandon)
        publisher.set_state(shared_page.OwnerState.RECOVERING)
        lock.publish()
        report = act()
        taking = _Taking(
            directory=directory,
            core=core,
            strategies=strategies,
            health=health,
            lock=lock,
            page=publisher.page,
            undo=undo,
            publisher=publisher,
            replica=replica,
        )
        opened, start = taking.open(plan, settings, is_new=is_new)
        end_cut(directory.files, directory.path)  # the log, queues and index are cut
        forget_clean_stop(directory.files, directory.path)  # before anything is appended
        publisher.start(opened.positions)
        report = report._replace(dispatched_from=start)
        owned = with_services(opened, strategies, publisher, checkpoint, report, start)
        begin(progress, COMPLETING)
        undo.callback(owned.reput.close)
        owned.reput.complete(progress)
        undo.callback(owned.watch.close)
        owned.watch.start()
        begin_services(owned)
        undo.callback(_close_if_shared, owned, undo)
        lock.let_in(share=alone is None)
        prepared.begun.append(owned)
        undo.pop_all()
    owned.last_record = plan.found.last_offset
    owned.recovery = report = owned.recovery._replace(seconds=time.monotonic() - begun)
    if not report.clean or report.changed:
        _LOG.info("%s: %s", directory.path, report)
    return owned


def _close_if_shared(owned: OwnedStore, undo: ExitStack) -> None:
    """Close the store instead of undoing its opening, which others may have joined."""
    if not owned.lock.is_alone:
        undo.pop_all()
        quietly(owned.close)


def _examined(
    directory: StoreDirectory,
    core: StoreSettings,
    progress: Progress | None,
    undo: ExitStack,
    *,
    full: bool,
) -> tuple[RecoveryPlan, Callable[[], RecoveryReport]]:
    """Examine the log; return the plan, and a function that carries it out.

    A new store, and one that is unchanged since a clean stop, load nothing else of the recovery.
    """
    unread = None if full else unread_plan(directory, core)
    if unread is not None:
        return unread, lambda: unread.report
    from lakelog.recovery.apply import BackgroundSync, apply_plan
    from lakelog.recovery.examine import examine

    ahead = BackgroundSync(directory, core.segment_size_bytes)
    undo.callback(ahead.leave)
    plan = examine(directory, core, progress, full=full, on_unclean=ahead.begin)

    def act() -> RecoveryReport:
        ahead.end()
        return apply_plan(directory, plan, core.segment_size_bytes)

    return plan, act


def with_services(
    opened: OpenLog,
    strategies: Strategies,
    publisher: Publisher,
    checkpoint: CheckpointKeeper,
    report: RecoveryReport,
    start: int,
) -> OwnedStore:
    """Add the services to ``opened``: dispatching, publishing, checkpoint.

    :param strategies: those of ``opened``, with the dispatchers
    :param start: the offset up to which the log is already dispatched
    """
    directory, positions = opened.directory, opened.positions
    files, path = directory.files, directory.path
    reader = LogReader(
        ViewSource(opened.segments, read_damage(files, path)),
        OwnedBounds(positions),
        lambda: False,  # the bounds exclude unfinished appends of all processes
        decoder=strategies.decoder,
    )
    reput = DispatchRunner(
        lambda first, end: reader.pieces(first, end, verify=False),
        DispatchCursor(path, strategies.dispatchers, start),
        positions,
        PageWaiter(files, path),
        opened.log.commit if opened.log.staged else None,
    )
    of_log = {each.name: getattr(opened, each.name) for each in attrs.fields(OpenLog) if each.init}
    of_log["strategies"] = strategies
    owned = OwnedStore(
        **of_log,
        reader=reader,
        reput=reput,
        checkpoint=checkpoint,
        recovery=report,
        publisher=publisher,
    )
    owned.health.add_listener(publisher.failed)
    checkpoint.ask(
        lambda: StoreCheckpoint(
            physic_timestamp_ms=positions.flushed_timestamp_ms,
            confirm_offset=positions.flushed,
        )
    )
    return owned


def begin_services(owned: OwnedStore) -> None:
    """Start dispatching new records; existing ones are dispatched already."""
    owned.lock.take_services()
    if owned.reput.failure is None and any(
        isinstance(each.dispatcher, hooks.QueueReader) for each in owned.dispatchers
    ):
        owned.lock.set_followed()
    owned.watch.on_turn = owned.publisher.turn
    owned.reput.follow()


def _take(
    directory: StoreDirectory, core: StoreSettings, undo: ExitStack, alone: str | None
) -> tuple[Membership, bool]:
    """Check, lock, check again; return the membership, and whether the store is new."""
    is_new = directory.is_new_or_being_made()
    if not (directory.path / LOCK_FILE).exists():
        directory.check_segments(core.segment_size_bytes)
        directory.files.make_dir(directory.path)
        try:  # an earlier owner may have died between mkdir and sync
            directory.files.sync_dir(directory.path.parent)
        except NotOpened as error:
            if error.errno not in NO_RIGHTS:
                raise
    lock = Membership.alone(directory.files, directory.path, why=alone)
    undo.callback(lock.leave)
    directory.check_segments(core.segment_size_bytes)
    return lock, directory.is_new() if is_new is None else is_new


@attrs.define(eq=False, repr=False, kw_only=True)
class _Taking(LogMaker):
    """Takes over a directory after its examination."""

    publisher: Publisher

    def open(
        self, plan: RecoveryPlan, settings: Mapping[str, Any], *, is_new: bool
    ) -> tuple[OpenLog, int]:
        """Fill gaps, then build the log; also return the offset to dispatch from."""
        directory, strategies = self.directory, self.strategies
        directory.files.make_dir(directory.commitlog)
        directory.remove_mark()
        segment_maker = self.segment_maker()
        segment_maker.remove_unfinished()
        remove_tree(directory.files, segment_maker.temporary / REBUILD_DIR)
        start = resume(strategies.dispatchers, plan.minimum, plan.end_offset)
        if plan.fillings:
            from lakelog.recovery.filler import fill_gaps

            start = fill_gaps(directory, plan, strategies.dispatchers, start)
        self._mark(is_new=is_new)
        self._publish(plan, start, settings)
        segments = self.segments(segment_maker, alone=True)
        return self.make(segments), start

    def _mark(self, *, is_new: bool) -> None:
        """Mark the store as open."""
        files, path = self.directory.files, self.directory.path
        if identity.read_identity(files, path) is None:
            identity.make_identity(files, path, new=is_new)
        if self.strategies.noted:
            identity.note_strategies(files, path, self.strategies.noted)
        if not (path / ABORT_FILE).exists():
            self.undo.callback(quietly, remove_abort, files, path)  # may be partly written
        write_abort(files, path)
        write_checkpoint(files, path, read_checkpoint(files, path), is_there=True)

    def _publish(self, plan: RecoveryPlan, dispatched: int, settings: Mapping[str, Any]) -> None:
        """Publish the positions of the recovered log and its queue ends."""
        files, path, page = self.directory.files, self.directory.path, self.page
        strategies, end = self.strategies, plan.end_offset
        flushed, flushed_ms = end, plan.found.last_timestamp_ms
        if self.replica:
            vouched = read_checkpoint(files, path)
            flushed = max(plan.minimum, min(end, vouched.confirm_offset))
            flushed_ms = min(flushed_ms, vouched.physic_timestamp_ms)
        page.reset(self.core.segment_size_bytes, settings)
        Positions(page.words).start(
            plan.minimum,
            end,
            dispatched,
            plan.found.last_timestamp_ms,
            durable=getattr(strategies.flush, "waits_for_disk", False),
            staged=strategies.writer.traits.staged,
        )
        page.words[shared_page.FLUSHED] = flushed
        page.words[shared_page.FLUSHED_TIMESTAMP] = flushed_ms
        remove_tables(files, path)
        self.undo.callback(quietly, remove_tables, files, path)
        QueueTable.make(files, path, 1, plan.found.next_offsets)
        page.words[shared_page.TABLE_GENERATION] = 1


def owner_parts(
    prepared: OpenRequest,
    progress: Progress | None = None,
    *,
    full: bool = False,
    alone: str | None = None,
    replica: bool | None = False,
    recovers: bool = False,
) -> RoleParts:
    """Build the strategies, then take over the directory; raises as :func:`lakelog.open`.

    :param progress: receives the progress of recovery; see :mod:`lakelog.recovery.report`
    :param full: whether recovery reads the whole log
    :param alone: why no other process may join; ``None`` allows it, if the writer does
    :param replica: whether the store must be a replica, or must be none; ``None`` if the settings
        decide
    :param recovers: whether the store is opened for its recovery only; a replica then stays one
    """
    registry, settings, path = prepared.registry, prepared.settings, prepared.path
    directory = StoreDirectory.of(prepared.files, path, settings.core)
    with directory.beginning():
        context = prepared.context(read_only=False)
        strategies = make_strategies(registry, settings, context)
        copies = strategies.replicator
        is_copy = is_replica(prepared.files, path, copies, wanted=replica, recovers=recovers)
        archive = make_archive(registry, settings, context)
        registry.events.store_opening(path, read_only=False)
        health = Health(path, partial(registry.events.store_failed, path))
        guard(context, health)
        alone = FILLED_BY_MASTER if is_copy else alone or _why_alone(prepared, strategies.writer)
        shared = {ALONE: alone} if alone else shared_settings(registry, settings)
        owned = open_owned(
            prepared,
            directory,
            strategies,
            health,
            context.checkpoint,
            shared,
            progress,
            full=full,
            replica=is_copy,
        )
        parts = with_maintenance(prepared, owned, archive, owned.close)
        return _filled(parts, owned, copies) if is_copy else parts


def _filled(parts: RoleParts, owned: OwnedStore, receiver: object) -> RoleParts:
    """Refuse puts, and begin to receive."""
    parts.role = "replica"
    path = owned.directory.path
    refused = f"{path}: {FILLED_BY_MASTER}; put there"
    parts.puts = RefusingWriter(path, refused, owned.appender.flush)
    if isinstance(receiver, hooks.Receiver):
        try:
            with owned.strategies.blaming("replicator", "receive_into()"):
                receiver.receive_into(replica_log(owned))
        except BaseException:  # Ctrl-C too
            parts.close()
            raise
    return parts


def guard(context: hooks.Context, health: Health) -> None:
    """Freeze the checkpoint if the store fails; fail the store if the checkpoint cannot be written.

    A checkpoint that advanced after a failed sync could confirm bytes that are not durable.
    """
    health.add_listener(lambda _: context.checkpoint.freeze())
    context.checkpoint.on_failure = health.fail


def with_maintenance(
    prepared: OpenRequest,
    owned: OwnedStore,
    archive: hooks.SegmentSource | None,
    back: Callable[[], None],
) -> RoleParts:
    """Build the parts around a log, with its maintenance; call ``back`` on failure."""
    core, events, directory = prepared.settings.core, prepared.registry.events, owned.directory
    with ExitStack() as undo:
        undo.callback(back)
        if archive is not None:
            owned.reader.add_archive(archive, core.segment_size_bytes)
        events.store_recovered(prepared.path, owned.recovery)
        owned.segments.on_roll = lambda start: events.segment_rolled(
            directory.segment(start), start
        )
        owned.page.set_pause(None)  # a former process with the services may have left a pause
        manager = Managing(owned, lambda: parts.maintenance)
        answering = (
            None if owned.lock.is_alone else Answering(prepared.files, prepared.path, manager)
        )

        def turn() -> None:
            owned.publisher.turn()
            if answering is not None and not owned.lock.is_alone:
                answering.turn()

        owned.watch.on_turn = turn
        parts = RoleParts(
            prepared,
            "owner",
            owned.reader,
            owned.appender,
            owned.reput,
            lambda: _maintenance(prepared, owned),
            prepared.extended(owned.reader, owned.dispatchers, owned.reput),
            manager=manager,
            answering=answering,
            owned=owned,
        )
        undo.callback(parts.close_services)
        if core.cleaner is not None or core.disk_watcher is not None:
            parts.maintenance  # noqa: B018  # begins its rounds
        prepared.begun.append(parts)
        undo.pop_all()
    return parts


def _maintenance(prepared: OpenRequest, owned: OwnedStore) -> MaintenanceRounds:
    """Build the maintenance; most stores have no cleaner and no watcher, and load none of it."""
    from lakelog.maintenance.planning import MaintainedLog
    from lakelog.maintenance.rounds import MaintenanceRounds

    log = MaintainedLog(
        directory=owned.directory,
        reader=owned.reader,
        starts=owned.segments.starts,
        segment_size_bytes=prepared.settings.core.segment_size_bytes,
        cleaner=lambda: owned.strategies.cleaner,
        disk_watcher=lambda: owned.strategies.disk_watcher,
        events=prepared.registry.events,
        clock=prepared.clock,
    )
    section = prepared.settings.section(MAINTENANCE)
    made = MaintenanceRounds(section, log, owned.log, owned.page, owned.reput)
    made.start()
    return made


def _why_alone(prepared: OpenRequest, writer: hooks.Writer) -> str | None:
    """Why no other process may join, if so: staged buffers and replaced files are not shared."""
    if writer.traits.staged:
        return staging(prepared.settings.core.writer)
    if not isinstance(prepared.files, RealFileSystem):
        return "its files stand in for the operating system's"
    return None


def staging(writer: str) -> str:
    """The reason why no other process may write beside this staged writer."""
    return f"the writer {writer!r} keeps bytes in memory that no other process sees"
