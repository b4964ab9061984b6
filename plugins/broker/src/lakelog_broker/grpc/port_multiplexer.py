"""One port for plain text and TLS: a proxy that selects the server by a connection's first byte.

A port of grpcio accepts only one of the two; RocketMQ's proxy accepts both. A TLS connection begins
with a handshake record, type 0x16. HTTP/2 in plain text begins with ``PRI``.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

_HANDSHAKE: Final = 0x16


class _Copier(asyncio.Protocol):
    """Writes received bytes to its peer, no faster than the peer accepts them."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: _Copier | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the protocol's
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()


class PortMultiplexer(_Copier):
    """A client's connection, copied to the Unix socket of the plain server or the TLS server.

    :param plain: path of the plain server's socket
    :param tls: path of the TLS server's socket
    """

    def __init__(self, plain: str, tls: str) -> None:
        super().__init__()
        self._plain, self._tls = plain, tls
        self._first = bytearray()
        self._opening: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        """Copy the bytes, or buffer them until the connection to the server is open."""
        if self.peer is not None:
            super().data_received(data)
            return
        self._first += data
        assert self.transport is not None
        self.transport.pause_reading()
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        path = self._tls if self._first[0] == _HANDSHAKE else self._plain
        assert self.transport is not None
        try:
            _, peer = await asyncio.get_running_loop().create_unix_connection(_Copier, path)
        except OSError:
            self.transport.close()
            return
        peer.peer, self.peer = self, peer
        super().data_received(bytes(self._first))
        self._first.clear()
        if self.transport.is_closing():
            self.connection_lost(None)
        else:
            with contextlib.suppress(RuntimeError):
                self.transport.resume_reading()
