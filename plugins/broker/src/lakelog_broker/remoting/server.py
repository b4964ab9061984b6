"""The remoting port: name server and broker on one port, as their request codes are distinct.

The listening socket: limits the number of connections, and accepts TLS on the same port.

A TLS handshake begins with byte 0x16, a remoting frame with the high byte of its length, which is
0 or 1. The first byte is read with ``MSG_PEEK``, so that TLS or the frames still begin with it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from lakelog.errors import SettingsError
from lakelog_broker.broker import Broker
from lakelog_broker.codes import RequestCode
from lakelog_broker.remoting.connection import Connection, Handler
from lakelog_broker.remoting.frame import RemotingCommand
from lakelog_broker.remoting.handlers import clients, offsets, plainsends, pulling, sending
from lakelog_broker.settings import BrokerSettings, refuse_exposed
from lakelog_broker.state.topics import RequestModes

if TYPE_CHECKING:
    from lakelog_broker.popping.service import Popping

_LOG: Final = logging.getLogger("lakelog.broker")
_HANDSHAKE: Final = 0x16
_BACKLOG: Final = 1024
_RETRY_S: Final = 0.5


class Listener:
    """Accepts connections and starts their protocol.

    :param connect: makes the protocol of a connection
    :param count: returns the number of connections whose protocol has started
    """

    def __init__(
        self,
        settings: BrokerSettings,
        connect: Callable[[], asyncio.Protocol],
        count: Callable[[], int],
    ) -> None:
        self._settings, self._connect, self._count = settings, connect, count
        self._tls = tls_context(settings)
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._starting: dict[asyncio.Task[None], socket.socket] = {}
        self._is_full = False

    def start(self) -> int:
        """Bind the port and accept connections; return the port. Raises ``OSError``."""
        settings = self._settings
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        address = (settings.host, settings.port)
        self._socket = socket.create_server(address, family=family, backlog=_BACKLOG)
        self._socket.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(self._socket))
        return int(self._socket.getsockname()[1])

    def descriptors(self) -> list[int]:
        """Descriptors of the listener and of connections without a protocol; -1 if closed."""
        sockets = [*filter(None, [self._socket]), *self._starting.values()]
        return [each.fileno() for each in sockets]

    async def close(self) -> None:
        """Close the port, and the connections whose protocol has not started."""
        tasks = [*self._starting, *filter(None, [self._accepting])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:  # such as no free file descriptor
                _LOG.warning("no connection can be accepted now: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            if self._count() + len(self._starting) >= self._settings.max_connections:
                self._refuse(accepted, peer)
                continue
            self._is_full = False
            accepted.setblocking(False)
            task = asyncio.create_task(self._begin(accepted, peer))
            self._starting[task] = accepted
            task.add_done_callback(self._starting.pop)

    def _refuse(self, accepted: socket.socket, peer: object) -> None:
        accepted.close()
        if not self._is_full:  # one log line for consecutive refusals
            most = self._settings.max_connections
            _LOG.warning("%s is refused: there are %d connections (max_connections)", peer, most)
        self._is_full = True

    async def _begin(self, accepted: socket.socket, peer: object) -> None:
        loop, timeout = asyncio.get_running_loop(), self._settings.first_byte_timeout_s
        try:
            async with asyncio.timeout(timeout):
                first = await _first_byte(accepted)
            tls = self._tls if first == bytes([_HANDSHAKE]) else None
            if not first or (tls is None and self._settings.tls == "required"):
                if first:
                    _LOG.warning("%s is disconnected, as it does not use TLS", peer)
                accepted.close()
                return
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                self._connect, accepted, ssl=tls, ssl_handshake_timeout=timeout if tls else None
            )
        except (OSError, TimeoutError) as error:
            _LOG.info("%s is disconnected before its first request: %r", peer, error)
            accepted.close()
        except BaseException:
            accepted.close()
            raise


async def _first_byte(accepted: socket.socket) -> bytes:
    """Peek at the first byte of a peer; empty if the peer has closed the connection."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def ready() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(accepted, ready)
    try:
        await readable
    finally:
        loop.remove_reader(accepted)
    return accepted.recv(1, socket.MSG_PEEK)


def tls_context(settings: BrokerSettings) -> ssl.SSLContext | None:
    """The server's TLS context, or ``None`` without TLS; raises :class:`SettingsError`."""
    if settings.tls == "off":
        return None
    if settings.certificate is None:
        raise SettingsError(f"tls = {settings.tls!r} needs a certificate and its key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"{settings.certificate} cannot be used for TLS: {error}") from error
    return context


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
            clients.RouteRequests(broker),
            sends,
            pulling.PullRequests(broker),
            clients.ClientRequests(broker),
            offsets.OffsetRequests(broker),
            offsets.LookupRequests(broker),
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
