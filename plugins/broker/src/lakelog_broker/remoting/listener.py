"""The listening socket: limits the number of connections, and accepts TLS on the same port.

A TLS handshake begins with byte 0x16, a remoting frame with the high byte of its length, which is
0 or 1. The first byte is read with ``MSG_PEEK``, so that TLS or the frames still begin with it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from lakelog.errors import SettingsError
from lakelog_broker.settings import BrokerSettings

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
