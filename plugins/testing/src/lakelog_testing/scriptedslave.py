"""A slave of RocketMQ's HA protocol whose steps a test scripts, for tests of masters.

It has its own reading of the protocol, so that it shares no mistake with an implementation:
reports are ``>q``, frames ``>qi`` and a body.
"""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import suppress
from types import TracebackType
from typing import Self

from lakelog_testing.threads import PATIENCE_SECONDS

_CLOSED = "the master closed the connection"
_BUFFER_BYTES = 1 << 20
"""Of the socket: a master cannot send far ahead of a slave that does not read."""


class ScriptedSlave:
    """One connection to a master; each read fails with ``TimeoutError`` if nothing comes."""

    def __init__(
        self,
        port: int,
        *,
        source: str = "127.0.0.1",
        patience_seconds: float = PATIENCE_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connect to ``port`` of this machine.

        :param source: own address: all of ``127.0.0.0/8`` are of this machine
        """
        self._sock = socket.create_connection(
            ("127.0.0.1", port), patience_seconds, source_address=(source, 0)
        )
        if tls is not None:
            self._sock = tls.wrap_socket(self._sock, server_hostname="localhost")
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self.end = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are; raises ``EOFError`` if the master has closed."""
        try:
            self._sock.sendall(data)
        except ConnectionError as error:
            raise EOFError(_CLOSED) from error

    def report(self, *offsets: int) -> None:
        """Send reports, all at once."""
        self.send(b"".join(struct.pack(">q", each) for each in offsets))

    def frame(self) -> tuple[int, bytes]:
        """The next frame: offset and body. Raises ``EOFError`` if the master closes."""
        offset, size = struct.unpack(">qi", self._read(12))
        assert size >= 0
        if self.end >= 0:
            assert offset == self.end, f"a frame at {offset}, expected at {self.end}"
        body = self._read(size)
        self.end = offset + size
        return offset, body

    def bytes_up_to(self, end: int, *, report: bool = True) -> bytes:
        """The bodies of all frames up to offset ``end``; each is reported, if ``report``."""
        bodies = list[bytes]()
        while self.end < end:
            _, body = self.frame()
            bodies.append(body)
            if body and report:
                self.report(self.end)
        return b"".join(bodies)

    def is_closed(self) -> bool:
        """Whether the master closes without another byte; waits for it."""
        try:
            return self._sock.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        """Close the connection; ends a read of another thread, too."""
        with suppress(OSError):  # the master was faster
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                got = self._sock.recv(size - len(data))
            except ConnectionError:
                got = b""
            if not got:
                raise EOFError(_CLOSED)
            data += got
        return bytes(data)
