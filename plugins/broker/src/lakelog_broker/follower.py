"""The follower ``broker``: a broker for a store that ``lakelog serve`` keeps open.

::

    followers = ["broker"]

    [broker]
    port = 9876

It runs in its own process, which appends to the store like the store's other writers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakelog.hooks import Context, Factory, Kind
from lakelog_broker.settings import BrokerSettings

if TYPE_CHECKING:
    from lakelog_broker.embedded import EmbeddedBroker

SECTION: Final = "broker"


class BrokerFollower:
    """Serves a store until it is stopped.

    :ivar broker: the running broker
    """

    def __init__(self, path: Path, settings: BrokerSettings, /, **opening: Any) -> None:
        """Prepare; open nothing yet.

        :param opening: further arguments of :func:`lakelog.open`
        """
        from lakelog_broker.embedded import EmbeddedBroker

        self.broker: EmbeddedBroker = EmbeddedBroker(path, settings, **opening)

    def start(self) -> None:
        """Serve, and notify the service manager of the address.

        Raises as :meth:`EmbeddedBroker.start`.
        """
        from lakelog_daemon.notify import STATUS, Notifier

        self.broker.start()
        Notifier.of(os.environ).send(f"{STATUS}name server and broker at {self.broker.namesrv}")

    def is_well(self) -> bool:
        """Whether the broker serves requests; raises as :meth:`EmbeddedBroker.is_well`."""
        return self.broker.is_well()

    def stop(self) -> None:
        """Stop, and close the store; raises as :meth:`EmbeddedBroker.close`."""
        self.broker.close()


def _make(settings: BrokerSettings, context: Context) -> BrokerFollower:
    return BrokerFollower(context.path, settings)


BROKER: Final = Factory(
    Kind.FOLLOWER, SECTION, BrokerSettings, _make, "serves clients of RocketMQ (lakelog broker)"
)
