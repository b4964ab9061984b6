"""Builds the parts of an owner: strategies, directory, then maintenance."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from lakelog.dispatch.arrivals import Arrivals
from lakelog.dispatch.wait import OwnedWait
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.shared.dispatch_lock import DispatchLock
from lakelog.interfaces import Receiver, SegmentSource, Writer
from lakelog.log.health import Health
from lakelog.log.store_directory import StoreDirectory
from lakelog.settings.catalog import MAINTENANCE
from lakelog.store.house import keep_house
from lakelog.store.open_log import OpenLog, lead
from lakelog.store.owner import OwnedStore, open_owned, take_services
from lakelog.store.replica import ALONE, ReceivedLog, is_replica
from lakelog.store.roles.asking import Answering
from lakelog.store.roles.managing import Managing
from lakelog.store.roles.parts import RefusingWriter, RoleParts
from lakelog.store.roles.prepared import OpenRequest
from lakelog.store.roles.telling import told
from lakelog.store.strategies import (
    Strategies,
    add_services,
    make_archive,
    make_strategies,
)

if TYPE_CHECKING:
    from lakelog.recovery.examine import Progress


def owner_parts(
    prepared: OpenRequest,
    progress: Progress | None = None,
    *,
    full: bool = False,
    alone: str | None = None,
    replica: bool | None = False,
    recovers: bool = False,
) -> RoleParts:
    """Build the strategies, then take over the directory.

    :param progress: receives the progress of recovery; see :mod:`lakelog.recovery.report`
    :param full: whether recovery reads the whole log
    :param alone: why no other process may join; ``None`` lets them, if the writer allows it
    :param replica: whether it must be a replica, or must be none; ``None`` if the settings decide
    :param recovers: whether it is opened for its recovery only; a replica then stays one
    """
    directory = StoreDirectory.of(prepared.files, prepared.path, prepared.settings.core)
    with directory.beginning():
        return _parts(prepared, directory, progress, full, alone, replica, recovers)


def _parts(
    prepared: OpenRequest,
    directory: StoreDirectory,
    progress: Progress | None,
    full: bool,
    alone: str | None,
    wanted: bool | None,
    recovers: bool,
) -> RoleParts:
    core, events = prepared.settings.core, prepared.registry.events
    context = prepared.context(read_only=False)
    strategies = make_strategies(prepared.registry, prepared.settings, context)
    copies = strategies.replicator
    replica = is_replica(prepared.files, prepared.path, copies, wanted=wanted, recovers=recovers)
    archive = make_archive(prepared.registry, prepared.settings, context)
    events.store_opening(prepared.path, read_only=False)

    def failed(cause: BaseException) -> None:
        context.checkpoint.freeze()
        events.store_failed(prepared.path, cause)

    health = Health(prepared.path, failed)
    alone = ALONE if replica else alone or _why_alone(prepared, strategies.writer)
    context.checkpoint.on_failure = health.fail
    arrivals = Arrivals()
    owned = open_owned(
        directory,
        core,
        strategies,
        health,
        context.checkpoint,
        arrivals,
        told(prepared.registry, prepared.settings) if alone is None else {},
        progress,
        full=full,
        alone=alone,
        replica=replica,
    )
    parts = _housed(prepared, owned, strategies, archive, arrivals, owned.close)
    return _filled(parts, owned, copies) if replica else parts


def _filled(parts: RoleParts, owned: OwnedStore, receiver: object) -> RoleParts:
    """Refuse puts, and begin to receive."""
    parts.role = "replica"
    parts.puts = RefusingWriter(f"{owned.directory.path}: {ALONE}; put there")
    if isinstance(receiver, Receiver):
        try:
            receiver.receive_into(ReceivedLog(owned, receiver.source))
        except BaseException:  # Ctrl-C too
            parts.close()
            raise
    return parts


def serving_parts(prepared: OpenRequest, opened: OpenLog, strategies: Strategies) -> RoleParts:
    """Build the parts of a process that takes the services of its open log.

    :param strategies: those for appending
    """
    registry, settings = prepared.registry, prepared.settings
    context = prepared.context(read_only=False)
    archive = make_archive(registry, settings, context)
    opened.health.also(lambda _: context.checkpoint.freeze())
    context.checkpoint.on_failure = opened.health.fail
    with ExitStack() as undo:
        lock = DispatchLock.take(prepared.files, prepared.path)
        undo.callback(lock.release)
        all_of_them = add_services(strategies, registry, settings, context)
        for each in all_of_them.dispatchers:
            undo.callback(each.dispatcher.close)
        lead(strategies, undo)
        arrivals = Arrivals()
        owned = take_services(opened, all_of_them, context.checkpoint, lock, arrivals)
        back = owned.reput.close
        parts = _housed(prepared, owned, all_of_them, archive, arrivals, back)
        undo.pop_all()
    return parts


def _housed(
    prepared: OpenRequest,
    owned: OwnedStore,
    strategies: Strategies,
    archive: SegmentSource | None,
    arrivals: Arrivals,
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
        house = keep_house(
            owned,
            strategies.cleaner,
            strategies.disk_watcher,
            prepared.settings.section(MAINTENANCE),
            events,
            prepared.clock,
        )
        undo.callback(house.close)
        house.start()
        manager = Managing(owned, house, prepared.path)
        answering = Answering(prepared.files, prepared.path, manager)
        owned.watch.on_turn = _turns(owned, answering)
        undo.pop_all()
    commit = owned.log.commit if owned.log.staged else None
    return RoleParts(
        "owner",
        owned.reader,
        owned.appender,
        owned.appender.flush,
        OwnedWait(owned.reput, arrivals, commit),
        house,
        prepared.extended(owned.reader, owned.dispatchers, arrivals),
        manager=manager,
        answering=answering,
        owned=owned,
    )


def _turns(owned: OwnedStore, answering: Answering) -> Callable[[], None]:
    """Build the periodic call of the watch thread, made each half second."""

    def turn() -> None:
        owned.publisher.turn()
        if not owned.lock.is_alone:
            answering.turn()

    return turn


def _why_alone(prepared: OpenRequest, writer: Writer) -> str | None:
    """Why no other process may join: staged buffers and fake files are not shared."""
    if writer.traits.staged:
        return staging(prepared.settings.core.writer)
    if not isinstance(prepared.files, RealFileSystem):
        return "its files stand in for the operating system's"
    return None


def staging(writer: str) -> str:
    """The reason why no process may write beside this writer."""
    return f"the writer {writer!r} keeps bytes in memory that no other process sees"
