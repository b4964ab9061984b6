"""A listening socket of the broker: it accepts connections within the limits of all its ports.

TLS and plain text come on one port. A TLS handshake begins with byte 0x16, and neither a remoting
frame nor HTTP/2 does. The first byte is read with ``MSG_PEEK``, so that the protocol begins with
it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

from lakelog.runtime.forks import register_forked
from lakelog_daemon.connection_limits import Admission, ConnectionLimits

_LOG: Final = logging.getLogger("lakelog.broker")
_HANDSHAKE: Final = b"\x16"
_BACKLOG: Final = 1024
_RETRY_S: Final = 0.5
CROWDED_S: Final = 0.02
_FEW: Final = 8
"""Connections that are accepted before others are served."""
_PEEKED_BYTES: Final = 1 << 16

Begin: TypeAlias = Callable[[socket.socket, Admission, bool], Awaitable[None]]
"""Starts the protocol of a connection: the socket, its place, and whether it begins with TLS."""


def _nothing(_received: bytes) -> bytes:
    return b""


class Listener:
    """Accepts connections.

    :ivar port: the bound port

    :param begin: starts the protocol; an ``OSError`` or ``TimeoutError`` ends the connection
    :param refused: returns the answer to what a connection that is refused has sent
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        begin: Begin,
        refused: Callable[[bytes], bytes] = _nothing,
    ) -> None:
        self.port = 0
        self._limits, self._begin, self._refused = limits, begin, refused
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._starting: dict[asyncio.Task[None], socket.socket] = {}
        register_forked(self)

    def start(self, host: str, port: int) -> None:
        """Bind the port and accept; raises ``OSError``."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self._accepting = asyncio.create_task(self._accept(self._socket))

    async def stop(self) -> None:
        """Close the port, and accept no more; may be called again."""
        if self._accepting is not None:
            await _cancelled([self._accepting])
        if self._socket is not None:
            self._socket.close()

    async def close(self) -> None:
        """Close the port, and end the connections whose start has not returned."""
        await self.stop()
        await _cancelled(list(self._starting))

    def forked(self) -> None:
        """Detach the sockets in a forked child, which does not serve them."""
        sockets = [*self._starting.values(), *filter(None, [self._socket])]
        detach(each.fileno() for each in sockets)

    async def _accept(self, listening: socket.socket) -> None:
        for number in itertools.count(1):
            while self._limits.is_crowded():
                await asyncio.sleep(CROWDED_S)
            try:
                accepted, peer = listening.accept()
            except BlockingIOError:
                await _readable(listening)
                continue
            except OSError as error:  # such as no free file descriptor
                self._limits.lines.warning("no connection can be accepted now: %s", error)
                self._limits.make_room("")
                await asyncio.sleep(_RETRY_S)
                continue
            accepted.setblocking(False)
            self._admit(accepted, str(peer[0]))
            if not number % _FEW:
                await asyncio.sleep(0)  # a flood of connections must not stop all others

    def _admit(self, accepted: socket.socket, address: str) -> None:
        place = self._limits.admit(address, accepted.close)
        if place is None:
            with suppress(OSError):
                accepted.send(self._refused(accepted.recv(_PEEKED_BYTES)))
            accepted.close()
            return
        place.has_unread = partial(_has_bytes, accepted)
        task = asyncio.create_task(self._start(accepted, place))
        place.end = task.cancel
        self._starting[task] = accepted
        task.add_done_callback(self._starting.pop)

    async def _start(self, accepted: socket.socket, place: Admission) -> None:
        try:
            await _readable(accepted)
            first = accepted.recv(1, socket.MSG_PEEK)
            if not first:
                raise ConnectionError("the peer has left")
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._begin(accepted, place, first == _HANDSHAKE)
        except BaseException as error:
            self._limits.leave(place)
            accepted.close()
            if not isinstance(error, OSError | TimeoutError):
                raise
            _LOG.info("%s is disconnected before its first request: %r", place.address, error)


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def detach(descriptors: Iterable[int]) -> None:
    """Let descriptors mean ``/dev/null`` until their socket objects are collected."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for each in descriptors:
        if each >= 0:
            os.dup2(nothing, each, inheritable=False)
    os.close(nothing)


def _has_bytes(accepted: socket.socket) -> bool:
    try:
        return bool(accepted.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False


async def _readable(sock: socket.socket) -> None:
    """Wait until a socket has bytes, a connection or its end to be read."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def ready() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(sock, ready)
    try:
        await readable
    finally:
        loop.remove_reader(sock)
