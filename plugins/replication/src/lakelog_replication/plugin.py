"""The plugin that offers the replicator ``rocketmq-ha``, and its commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakelog.hooks import Context, Factory, Kind, Replicator
from lakelog.hooks.hookspecs import hookimpl

if TYPE_CHECKING:
    from lakelog_replication.settings import RocketmqHaSettings


def make(settings: RocketmqHaSettings, context: Context) -> Replicator:
    """Build the replicator of ``settings.role``; only its modules are imported."""
    if settings.role == "slave":
        from lakelog_replication.replica.receiver import HaReceiver

        return HaReceiver(settings, context)
    from lakelog_replication.master.replicator import HaMaster, RefusingHaMaster

    return (RefusingHaMaster if settings.requires_in_sync else HaMaster)(settings, context)


@hookimpl
def lakelog_replicators() -> Sequence[Factory]:
    """Offer the replicator ``rocketmq-ha``."""
    summary = "copies the log with RocketMQ's HA protocol, as master or slave"
    settings = "lakelog_replication.settings:RocketmqHaSettings"
    return [Factory(Kind.REPLICATOR, "rocketmq-ha", settings, make, summary)]


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog replication``, ``replicate`` and ``promote``."""
    from lakelog_replication import commands

    app.add_typer(commands.app)
    for command in (commands.replicate, commands.promote):
        app.command()(command)
