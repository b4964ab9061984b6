"""Builds the parts of an owner: strategies, directory, then maintenance."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from lakelog.files.filesystem import RealFileSystem
from lakelog.hooks import Context, Receiver, SegmentSource, Writer
from lakelog.log.health import Health
from lakelog.log.store_directory import StoreDirectory
from lakelog.maintenance.planning import MaintainedLog
from lakelog.maintenance.rounds import ServedLog, maintain
from lakelog.processes.membership import ALONE
from lakelog.settings.catalog import MAINTENANCE
from lakelog.store.agreeing import shared_settings
from lakelog.store.owner import FILLED_BY_MASTER, OwnedStore, is_replica, open_owned, replica_log
from lakelog.store.parts import OpenRequest, RefusingWriter, RoleParts
from lakelog.store.requests import Answering, Managing
from lakelog.store.strategies import make_archive, make_strategies

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
            directory,
            settings.core,
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
    if isinstance(receiver, Receiver):
        try:
            receiver.receive_into(replica_log(owned))
        except BaseException:  # Ctrl-C too
            parts.close()
            raise
    return parts


def guard(context: Context, health: Health) -> None:
    """Freeze the checkpoint if the store fails; fail the store if the checkpoint cannot be written.

    A checkpoint that advanced after a failed sync could confirm bytes that are not durable.
    """
    health.add_listener(lambda _: context.checkpoint.freeze())
    context.checkpoint.on_failure = health.fail


def with_maintenance(
    prepared: OpenRequest,
    owned: OwnedStore,
    archive: SegmentSource | None,
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
        log = MaintainedLog(
            directory=directory,
            reader=owned.reader,
            starts=owned.segments.starts,
            segment_size_bytes=core.segment_size_bytes,
            cleaner=lambda: owned.strategies.cleaner,
            disk_watcher=lambda: owned.strategies.disk_watcher,
            events=events,
            clock=prepared.clock,
        )
        served = ServedLog(log=owned.log, health=owned.health, page=owned.page, reput=owned.reput)
        maintenance = maintain(prepared.settings.section(MAINTENANCE), log, served)
        undo.callback(maintenance.close)
        manager = Managing(owned, maintenance)
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
            maintenance,
            prepared.extended(owned.reader, owned.dispatchers, owned.reput),
            manager=manager,
            answering=answering,
            owned=owned,
        )
        undo.pop_all()
    return parts


def _why_alone(prepared: OpenRequest, writer: Writer) -> str | None:
    """Why no other process may join, if so: staged buffers and replaced files are not shared."""
    if writer.traits.staged:
        return staging(prepared.settings.core.writer)
    if not isinstance(prepared.files, RealFileSystem):
        return "its files stand in for the operating system's"
    return None


def staging(writer: str) -> str:
    """The reason why no other process may write beside this staged writer."""
    return f"the writer {writer!r} keeps bytes in memory that no other process sees"
