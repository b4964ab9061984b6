"""The remoting port: name server and broker in one, since their request codes differ."""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import Final
from weakref import WeakSet

from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode
from lakelog_broker.popping.service import Popping
from lakelog_broker.remoting.administration import (
    consumers,
    groups,
    names,
    progress,
    statistics,
    status,
    topics,
)
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.remoting.handlers import (
    clients,
    lookups,
    offsets,
    plainsends,
    popping,
    pulling,
    replies,
    routes,
    scheduling,
    sending,
)
from lakelog_broker.remoting.listener import Listener
from lakelog_broker.security.access import AccessControl
from lakelog_broker.security.users import AccessRight


class RemotingServer:
    """Accepts connections and dispatches their requests by code.

    :ivar handlers: by request code
    :ivar take: serves a common frame in a short way; false if nothing was done
    """

    def __init__(self, broker: Broker, pops: Popping) -> None:
        self.handlers: dict[int, Handler] = {}
        sends = sending.SendRequests(broker)
        for family in (
            routes.RouteRequests(broker),
            sends,
            pulling.PullRequests(broker),
            popping.PopRequests(broker, pops),
            clients.ClientRequests(broker),
            offsets.OffsetRequests(broker),
            lookups.LookupRequests(broker),
            scheduling.SchedulingRequests(broker),
            topics.TopicRequests(broker),
            groups.GroupRequests(broker),
            progress.ProgressRequests(broker),
            consumers.ConsumerRequests(broker),
            statistics.StatisticsRequests(broker),
            names.NameRequests(broker),
            replies.ReplyRequests(broker),
            status.StatusRequests(broker),
        ):
            self.handlers.update(family.handlers())
        self._broker = broker
        self._connections: set[Connection] = set()
        self._opaque = itertools.count(1)
        self._access = AccessControl.of(broker.settings)
        has_users = broker.settings.users is not None
        self.take = plainsends.PlainSends(broker, sends, has_users=has_users).take
        self._listener = Listener(
            broker.settings, lambda: Connection(self), lambda: len(self._connections)
        )
        broker.members.on_change = self._members_changed
        _ALL.add(self)

    async def start(self) -> int:
        """Bind the port and serve; returns the port. Raises ``OSError``."""
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
        """Give up the sockets in a forked child, where nobody serves them.

        Their descriptors stay open, on nothing, until the objects that have them are collected.
        """
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for each in (*self._listener.descriptors(), *(each.fileno() for each in self._connections)):
            if each >= 0:
                os.dup2(nothing, each, inheritable=False)
        os.close(nothing)

    def check(self, request: RemotingCommand) -> None:
        """Raise :class:`~lakelog_broker.codes.Refused` if its user may not send a request."""
        user, fields = self._access.check_remoting(request), request.fields
        if user.admin:
            return
        # The topic is that of a stored message: a client may send none, or a wrong one.
        if request.code == RequestCode.END_TRANSACTION:
            place = int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"])
            topic = self._broker.transactions.topic_of(*place) or ""
            self._access.require(user, AccessRight.PUB, topic=topic)
        elif request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            topic = self._broker.store.look_up(int(fields["offset"])).topic
            self._access.require(user, AccessRight.SUB, topic=topic)

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


_ALL: Final = WeakSet[RemotingServer]()


def _forked() -> None:
    for each in [*_ALL]:
        each.forked()


os.register_at_fork(after_in_child=_forked)
