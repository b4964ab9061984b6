"""The hooks of this package: a command, and a follower; imports are deferred until their use.

The follower is a broker for a store that ``lakelog serve`` keeps open::

    followers = ["broker"]

    [broker]
    port = 9876

It runs in its own process, which appends to the store like the store's other writers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lakelog.hooks import Context, Factory, Kind
from lakelog.hooks.hookspecs import hookimpl

if TYPE_CHECKING:
    from lakelog_broker.embedded import BrokerFollower
    from lakelog_broker.settings import BrokerSettings

SECTION: Final = "broker"


def _make(settings: BrokerSettings, context: Context) -> BrokerFollower:
    from lakelog_broker.embedded import BrokerFollower

    return BrokerFollower(context.path, settings, light_queues=context.core.light_queues)


@hookimpl
def lakelog_followers() -> Sequence[Factory]:
    """Offer ``broker``."""
    summary = "serves clients of RocketMQ (lakelog broker)"
    return [
        Factory(Kind.FOLLOWER, SECTION, "lakelog_broker.settings:BrokerSettings", _make, summary)
    ]


@hookimpl
def lakelog_cli_commands(app: Any) -> None:
    """Add ``lakelog broker``."""
    from lakelog_broker.commands import broker

    app.command()(broker)
