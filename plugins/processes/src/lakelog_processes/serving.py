"""Takes the services of a store from a process that released them or died."""

from __future__ import annotations

from contextlib import ExitStack

from lakelog.dispatch.run import resume
from lakelog.files.pages.publishing import Publisher
from lakelog.recovery.report import RecoveryReport
from lakelog.store.open_log import OpenLog, lead
from lakelog.store.owner import OwnedStore, begin_services, with_services
from lakelog.store.roles.ownerparts import guard, with_maintenance
from lakelog.store.roles.parts import RoleParts
from lakelog.store.roles.prepared import OpenRequest
from lakelog.store.strategies import Strategies, add_services, make_archive
from lakelog_interfaces.checkpoint import CheckpointKeeper


def serving_parts(prepared: OpenRequest, opened: OpenLog) -> RoleParts:
    """Build the parts of a process that takes the services of its open log."""
    registry, settings = prepared.registry, prepared.settings
    context = prepared.context(read_only=False)
    archive = make_archive(registry, settings, context)
    guard(context, opened.health)
    with ExitStack() as undo:
        strategies = add_services(opened.strategies, registry, settings, context)
        for each in strategies.dispatchers:
            undo.callback(each.dispatcher.close)
        lead(strategies, undo)
        owned = take_services(opened, strategies, context.checkpoint)
        parts = with_maintenance(prepared, owned, archive, owned.reput.close)
        undo.pop_all()
    return parts


def take_services(
    opened: OpenLog, strategies: Strategies, checkpoint: CheckpointKeeper
) -> OwnedStore:
    """Take over the services from a process that released them or died; the log is whole."""
    directory, positions = opened.directory, opened.positions
    opened.segments.first_offset = positions.minimum
    publisher = Publisher(directory.files, directory.path, checkpoint, opened.page)
    publisher.go_on(positions)
    end = positions.readable_elsewhere
    start = resume(strategies.dispatchers, positions.minimum, end)
    why = "another process had the store open"
    report = RecoveryReport(True, end, why, positions.minimum, end, 0, dispatched_from=start)
    owned = with_services(opened, strategies, publisher, checkpoint, report, start)
    owned.reput.complete()
    begin_services(owned)
    return owned
