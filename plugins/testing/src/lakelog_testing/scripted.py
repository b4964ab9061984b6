"""Both sides of RocketMQ's HA protocol, whose steps a test directs.

Reports are ``>q``, frames ``>qi`` and a body, as in RocketMQ 5.3.3. This is a reading of the
protocol of its own, so that it shares no mistake with an implementation.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from typing import Final, Self, TypeAlias

from lakelog_testing.threads import PATIENCE_SECONDS

FRAME: Final = struct.Struct(">qi")
REPORT: Final = struct.Struct(">q")

Script: TypeAlias = Callable[[socket.socket, int], bool]
"""Called with a connection and its first report; returns whether to serve it as usual."""


class ScriptedMaster:
    """A master on a free port of this machine, over a log that is just bytes.

    The first report has the offset to start at, and 0 means the start of the last segment. At the
    end of the log it sends heartbeats for ever.

    :ivar asked: the first report of each connection, in order
    :ivar reports: all reports
    :ivar script: called with each further connection before it is served; see :data:`Script`
    :ivar frame_bytes: longest body of a frame
    :ivar piece_bytes: bytes in one send; 0 sends each frame at once
    :ivar beats: whether heartbeats are sent
    """

    def __init__(
        self, log: bytes = b"", *, minimum: int = 0, segment_bytes: int = 1 << 20, port: int = 0
    ) -> None:
        """Begin to serve ``log``, whose first byte has the offset ``minimum``; port 0: any one."""
        self.asked: list[int] = []
        self.reports: list[int] = []
        self.script: Script = lambda _sock, _asked: True
        self.frame_bytes = 32 << 10
        self.piece_bytes = 0
        self.beats = True
        self.beat_s = 0.05
        self._minimum = minimum
        self._segment_bytes = segment_bytes
        self._log = bytearray(log)
        self._changed = Condition()
        self._over = False
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def end(self) -> int:
        """Offset behind the last byte."""
        return self._minimum + len(self._log)

    def append(self, data: bytes) -> None:
        """Extend the log."""
        with self._changed:
            self._log += data
            self._changed.notify_all()

    def set_back(self, end: int, data: bytes = b"") -> None:
        """Lose the log behind ``end``, and continue with ``data``; connections end before."""
        with self._changed:
            self.disconnect()
            del self._log[end - self._minimum :]
            self._log += data

    def delete_before(self, minimum: int) -> None:
        """Delete the start of the log."""
        with self._changed:
            del self._log[: minimum - self._minimum]
            self._minimum = minimum

    def disconnect(self) -> None:
        """End all connections."""
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def await_connections(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until ``count`` slaves have connected and reported."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked) >= count, timeout_s), self.asked

    def await_report(self, offset: int, timeout_s: float = 60.0) -> None:
        """Wait until a slave has reported ``offset`` or more."""
        with self._changed:
            reached = self._changed.wait_for(
                lambda: max(self.reports, default=-1) >= offset, timeout_s
            )
            assert reached, self.reports[-5:]

    # --- connections ---

    def _accept(self) -> None:
        while not self._over:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.add(sock)
            thread = Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads = [each for each in self._threads if each.is_alive()]
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError), sock:
            asked = self._report(sock, first=True)
            if asked is not None and self.script(sock, asked):
                reader = Thread(target=self._read_reports, args=(sock,), daemon=True)
                reader.start()
                self._send(sock, asked)
        self._open.discard(sock)

    def _report(self, sock: socket.socket, *, first: bool = False) -> int | None:
        """Note the next report; ``None`` at the end of the connection."""
        data = sock.recv(REPORT.size, socket.MSG_WAITALL)
        if len(data) < REPORT.size:
            return None
        (offset,) = REPORT.unpack(data)
        with self._changed:
            if first:
                self.asked.append(offset)
            self.reports.append(offset)
            self._changed.notify_all()
        return int(offset)

    def _read_reports(self, sock: socket.socket) -> None:
        with suppress(OSError):
            while self._report(sock) is not None:
                pass

    def _send(self, sock: socket.socket, asked: int) -> None:
        at = asked
        with self._changed:
            if not asked:
                at = max(self.end - self.end % self._segment_bytes, self._minimum)
        while not self._over:
            body = self._body(at)
            if body or self.beats:
                self._send_bytes(sock, FRAME.pack(at, len(body)) + body)
            at += len(body)
            if not body:
                with self._changed:
                    self._changed.wait(self.beat_s)

    def _body(self, at: int) -> bytes:
        """At most ``frame_bytes`` bytes at an offset, within one segment; empty at the end."""
        with self._changed:
            if not self._minimum <= at < self.end:
                return b""
            room = self._segment_bytes - at % self._segment_bytes
            start = at - self._minimum
            return bytes(self._log[start : start + min(self.frame_bytes, room)])

    def _send_bytes(self, sock: socket.socket, data: bytes) -> None:
        step = self.piece_bytes or len(data)
        for at in range(0, len(data), step):
            sock.sendall(data[at : at + step])

    def close(self) -> None:
        """End everything."""
        self._over = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.disconnect()
        with self._changed:
            self._changed.notify_all()
        for each in self._threads:
            each.join(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are; raises ``EOFError`` if the master has closed."""
        try:
            self._sock.sendall(data)
        except ConnectionError as error:
            raise EOFError(_CLOSED) from error

    def report(self, *offsets: int) -> None:
        """Send reports, all at once."""
        self.send(b"".join(REPORT.pack(each) for each in offsets))

    def frame(self) -> tuple[int, bytes]:
        """The next frame: offset and body. Raises ``EOFError`` if the master closes."""
        offset, size = FRAME.unpack(self._read(FRAME.size))
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
