"""The remoting port: name server and broker on one port, as their request codes are distinct."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.remoting.handlers import (
    clients,
    lookups,
    offsets,
    plainsends,
    pulling,
    routes,
    sending,
)
from lakelog_broker.remoting.listener import Listener
from lakelog_broker.settings import refuse_exposed
from lakelog_broker.state.request_modes import RequestModes

if TYPE_CHECKING:
    from lakelog_broker.popping.service import Popping


class RemotingServer:
    """Accepts connections and dispatches their requests by code.

    :ivar check: raises :class:`~lakelog_broker.codes.Refused` if the user of a request may not
        send it
    :ivar take: serves a common frame by a fast path; false if nothing was done
    """

    def __init__(self, broker: Broker, pops: Callable[[], Popping]) -> None:
        """Prepare.

        :param pops: returns the hand-outs; called at the first rare request

        Raises :class:`~lakelog.errors.CorruptConfig` and :class:`~lakelog.errors.SettingsError`.
        """
        self._handlers: dict[int, Handler] = {}
        self._pops, self._has_all = pops, False
        self._modes = RequestModes(broker.files, Path(broker.store.path))
        sends = sending.SendRequests(broker)
        for family in (
            routes.RouteRequests(broker),
            sends,
            pulling.PullRequests(broker),
            clients.ClientRequests(broker),
            offsets.OffsetRequests(broker),
            lookups.LookupRequests(broker),
        ):
            self._handlers.update(family.handlers())
        self._broker = broker
        self._connections: set[Connection] = set()
        self._opaque = itertools.count(1)
        self.check = _checks(broker)
        has_users = broker.settings.users is not None
        self.take = plainsends.PlainSends(broker, sends, has_users=has_users).take
        self._listener = Listener(
            broker.settings, lambda: Connection(self), lambda: len(self._connections)
        )
        broker.members.on_change = self._members_changed
        _ALL.add(self)

    async def start(self) -> int:
        """Bind the port and serve; return the port. Raises ``OSError``."""
        port = self._listener.start()
        self._broker.bound(self._broker.settings.host, port)
        return port

    async def close(self) -> None:
        """Close the port and all connections."""
        await self._listener.close()
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(0)

    def forked(self) -> None:
        """Detach the sockets in a forked child, which does not serve them.

        Their descriptors stay open on ``/dev/null`` until the socket objects are collected.
        """
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for each in (*self._listener.descriptors(), *(each.fileno() for each in self._connections)):
            if each >= 0:
                os.dup2(nothing, each, inheritable=False)
        os.close(nothing)

    def handler(self, code: int) -> Handler | None:
        """The handler of a request code, or ``None``."""
        if code not in self._handlers and not self._has_all:
            from lakelog_broker.remoting.rare_requests import rare_handlers

            self._handlers.update(rare_handlers(self._broker, self._pops(), self._modes))
            self._has_all = True
        return self._handlers.get(code)

    def opened(self, connection: Connection) -> None:
        """Note a new connection."""
        self._connections.add(connection)

    def closed(self, connection: Connection) -> None:
        """Remove a closed connection, and its members."""
        self._connections.discard(connection)
        self._broker.members.disconnected(connection)

    def next_opaque(self) -> int:
        """Return a new ``opaque`` number for a request to a client."""
        return next(self._opaque)

    def _members_changed(self, name: str) -> None:
        group = self._broker.members.group(name)
        for member in list(group.members.values()) if group else ():
            if isinstance(member.peer, Connection):
                fields = {"consumerGroup": name}
                member.peer.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields)


def _checks(broker: Broker) -> Callable[[RemotingCommand], None]:
    if broker.settings.users is None:  # the common case imports nothing about users
        refuse_exposed(broker.settings)
        return lambda _: None
    from lakelog_broker.security.access import StoredTopicAccess

    return StoredTopicAccess(broker).check


_ALL: Final = WeakSet[RemotingServer]()


def _forked() -> None:
    for each in [*_ALL]:
        each.forked()


os.register_at_fork(after_in_child=_forked)
