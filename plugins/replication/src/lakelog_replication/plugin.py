"""The plugin that offers the replicator ``rocketmq-ha``, and the commands of ``replication``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakelog.hookspecs import hookimpl
from lakelog.interfaces import Context, Factory, Kind, Replicator
from lakelog_replication.settings import RocketmqHaSettings


def make(settings: RocketmqHaSettings, context: Context) -> Replicator:
    """Build the replicator of ``settings.role``."""
    if settings.role == "slave":
        raise NotImplementedError
    from lakelog_replication.master.replicator import HaMaster  # not for a command that only reads

    return HaMaster(settings, context)


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


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog replication``."""
    from lakelog_replication.commands import app as replication

    app.add_typer(replication)
