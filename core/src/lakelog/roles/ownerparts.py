"""Makes the parts of an owner: the strategies, then the directory, then who keeps house in it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.consumers.offsettable import OffsetTable
from lakelog.directory import StoreDirectory
from lakelog.dispatchwait import OwnedWait
from lakelog.errors import LakelogError
from lakelog.files import RealFileSystem
from lakelog.health import Health
from lakelog.keeping import keep_house
from lakelog.owner import OwnedLog, open_owned
from lakelog.reading.arrivals import Arrivals
from lakelog.roles.parts import HubPart, Parts
from lakelog.roles.prepared import Prepared
from lakelog.services.away import Service, service_for
from lakelog.settings.catalog import ATTACH, MAINTENANCE
from lakelog.strategies import make_archive, make_strategies

if TYPE_CHECKING:
    from lakelog.reading.finder import Finder
    from lakelog.recovery.examine import Progress

_LOG: Final = logging.getLogger("lakelog")


def owner_parts(
    prepared: Prepared,
    progress: Progress | None = None,
    *,
    full: bool = False,
    listen: bool = False,
    succeeding: bool = False,
) -> Parts:
    """Make the strategies, then take over the directory.

    :param progress: told how far the recovery has come; see :mod:`lakelog.recovery.phases`
    :param full: whether the recovery reads the whole log
    :param listen: whether others may attach, if the settings say so, too
    :param succeeding: whether this process was attached, and settles what it had put
    """
    directory = StoreDirectory.of(prepared.files, prepared.path, prepared.settings.core)
    with directory.beginning():
        return _parts(prepared, directory, progress, full, listen, succeeding)


def _parts(
    prepared: Prepared,
    directory: StoreDirectory,
    progress: Progress | None,
    full: bool,
    listen: bool,
    succeeding: bool,
) -> Parts:
    core, events = prepared.settings.core, prepared.registry.events
    context = prepared.context(read_only=False)
    strategies = make_strategies(prepared.registry, prepared.settings, context)
    archive = make_archive(prepared.registry, prepared.settings, context)
    service = service_for(
        prepared.path, prepared.files, prepared.registry, prepared.settings, prepared.context
    )
    events.store_opening(prepared.path, read_only=False)

    def failed(cause: BaseException) -> None:
        context.checkpoint.freeze()
        events.store_failed(prepared.path, cause)

    health = Health(prepared.path, failed)
    context.checkpoint.on_failure = health.fail
    arrivals = Arrivals()
    listen = listen and _may_listen(prepared)
    owned = open_owned(
        directory,
        core,
        strategies,
        health,
        context.checkpoint,
        arrivals,
        progress,
        full=full,
        attended=listen,
        away=None if service is None else service.begin,
    )
    with ExitStack() as undo:
        undo.callback(owned.close)
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
        offsets = prepared.offsets(read_only=False)
        hub = _hub(prepared, owned, offsets, listen=listen) if listen or succeeding else None
        if hub is not None:
            undo.callback(hub.close)
        undo.callback(house.close)
        house.start()
        undo.pop_all()
    waits, make_finder = _reading(prepared, owned, arrivals, service)
    return Parts(
        "owner",
        owned.reader,
        owned.appender,
        owned.appender.flush,
        waits,
        house,
        offsets,
        make_finder,
        owned=owned,
        hub=hub,
    )


def _reading(
    prepared: Prepared, owned: OwnedLog, arrivals: Arrivals, service: Service | None
) -> tuple[OwnedWait, Callable[[], Finder]]:
    """How the owner waits for its dispatchers, and finds messages."""
    reads = None if service is None else service.reads
    if reads is None:
        commit = owned.log.commit if owned.log.staged else None
        finder = prepared.finder(owned.reader, owned.dispatchers, arrivals)
        return OwnedWait(owned.reput, arrivals, commit), finder
    refresh = reads.completion.refresh
    return reads.waits, prepared.finder(owned.reader, reads.dispatchers, reads.arrivals, refresh)


def _may_listen(prepared: Prepared) -> bool:
    """A socket is in the real file system; what stands in for files in a test has none."""
    wanted: bool = prepared.settings.section(ATTACH).listen
    return wanted and isinstance(prepared.files, RealFileSystem)


def _hub(prepared: Prepared, owned: OwnedLog, offsets: OffsetTable, *, listen: bool) -> HubPart:
    """Let others attach; where no socket can be had, the store works alone."""
    if listen:
        try:
            return _started(prepared, owned, offsets, listen=True)
        except (LakelogError, OSError) as error:
            owned.lock.tell_unattended()
            _LOG.warning("no other process can attach to this store: %s", error)
    return _started(prepared, owned, offsets, listen=False)


def _started(prepared: Prepared, owned: OwnedLog, offsets: OffsetTable, *, listen: bool) -> HubPart:
    from lakelog.attach.hub import Hub

    core = prepared.settings.core
    attach = attrs.evolve(prepared.settings.section(ATTACH), listen=listen)
    hub = Hub(prepared.path, owned.appender, owned.log, offsets, core, attach)
    hub.start()
    return hub
