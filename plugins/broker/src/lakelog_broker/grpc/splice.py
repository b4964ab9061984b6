"""One port for plain text and TLS: the first byte of a connection decides, then bytes are copied.

A server of grpcio takes one of the two on a port, and RocketMQ's proxy takes both. A TLS
connection begins with a record of the type handshake, 0x16; HTTP/2 in plain text with ``PRI``.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

_HANDSHAKE: Final = 0x16


class _Copier(asyncio.Protocol):
    """Writes what it reads to its peer, no faster than the peer takes it."""

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


class Splice(_Copier):
    """A client's connection, copied to the socket of the server for its kind."""

    def __init__(self, plain: str, tls: str) -> None:
        super().__init__()
        self._plain, self._tls = plain, tls
        self._first = bytearray()
        self._opening: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        """Copy, or note the first bytes until the other connection is open."""
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
