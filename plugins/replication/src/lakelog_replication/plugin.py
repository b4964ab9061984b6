"""The plugin that offers the replicator ``rocketmq-ha``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Context, Factory, Kind, Replicator
from lakelog_replication.settings import RocketmqHaSettings


def make(settings: RocketmqHaSettings, context: Context) -> Replicator:  # noqa: ARG001
    """Build the replicator of ``settings.role``; heavy imports wait until one is used."""
    if settings.role == "slave":
        from lakelog_replication.replica.receiver import HaReceiver

        return HaReceiver(settings)
    raise NotImplementedError(settings.role)


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog replicate`` and ``lakelog promote``."""
    from lakelog_replication.replica.commands import promote, replicate

    for command in (replicate, promote):
        app.command()(command)


@hookimpl
def lakelog_replicators() -> Sequence[Factory]:
    """Offer the replicator ``rocketmq-ha``."""
    return [
        Factory(
            Kind.REPLICATOR,
            "rocketmq-ha",
            RocketmqHaSettings,
            make,
            "copies the log with RocketMQ's HA protocol, as master or slave",
        )
    ]
