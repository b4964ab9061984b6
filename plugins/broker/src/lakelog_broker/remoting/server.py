"""The remoting port: name server and broker in one, since their request codes differ."""

from __future__ import annotations

import asyncio
import itertools

from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode
from lakelog_broker.popping.service import Popping
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.handlers import (
    administration,
    clients,
    lookups,
    offsets,
    pulling,
    routes,
    sending,
)
from lakelog_broker.remoting.handlers import (
    popping as pops,
)


class RemotingServer:
    """Accepts connections and dispatches their requests by code.

    :ivar handlers: by request code
    """

    def __init__(self, broker: Broker, popping: Popping) -> None:
        self.handlers: dict[int, Handler] = {}
        for family in (
            routes.Routes(broker),
            sending.Sending(broker),
            pulling.Pulling(broker),
            pops.Pops(broker, popping),
            clients.Clients(broker),
            offsets.Offsets(broker),
            lookups.Lookups(broker),
            administration.Administration(broker),
        ):
            self.handlers.update(family.handlers())
        self._broker = broker
        self._connections: set[Connection] = set()
        self._opaque = itertools.count(1)
        self._server: asyncio.Server | None = None
        broker.members.on_change = self._members_changed

    async def start(self) -> int:
        """Bind the port and serve; returns the port. Raises ``OSError``."""
        settings = self._broker.settings
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self), settings.host, settings.port, backlog=1024
        )
        port: int = self._server.sockets[0].getsockname()[1]
        self._broker.bound(settings.host, port)
        return port

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(0)

    def opened(self, connection: Connection) -> None:
        """Note a new connection."""
        self._connections.add(connection)

    def closed(self, connection: Connection) -> None:
        """Remove a connection that is closed, and its members."""
        self._connections.discard(connection)
        self._broker.members.disconnected(connection)

    def next_opaque(self) -> int:
        """A number for a request to a client."""
        return next(self._opaque)

    def _members_changed(self, name: str) -> None:
        group = self._broker.members.group(name)
        for member in list(group.members.values()) if group else ():
            if isinstance(member.peer, Connection):
                fields = {"consumerGroup": name}
                member.peer.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields)
