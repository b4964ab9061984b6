"""One connection to a master, as its slave: a first report, then frames and further reports."""

from __future__ import annotations

import select
import socket
import ssl
import time
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import attrs

from lakelog_replication.address import Address
from lakelog_replication.settings import RocketmqHaSettings
from lakelog_replication.tls import tls_context
from lakelog_replication.wire import FrameStream, HaFrame, report

CONNECT_SECONDS: Final = 5.0
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@attrs.frozen
class Dialer:
    """How a master is reached.

    :ivar tls: between lakelogs; RocketMQ has none
    """

    master: Address
    heartbeat_s: float
    silence_s: float
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, settings: RocketmqHaSettings) -> Dialer:
        """Raises :class:`~lakelog.errors.SettingsError` for files that are no certificates."""
        return cls(
            Address.parse(settings.master),
            settings.heartbeat_interval_ms / 1000,
            settings.silence_timeout_ms / 1000,
            tls_context(settings, ssl.Purpose.SERVER_AUTH),
        )

    def dial(self, asked: int) -> MasterConnection:
        """Connect, and ask for the log from ``asked`` on; raises ``OSError``."""
        master = self.master
        sock = socket.create_connection((master.host, master.port), CONNECT_SECONDS)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_hostname=master.host)
            return MasterConnection(sock, asked, self.heartbeat_s, self.silence_s)
        except BaseException:  # Ctrl-C too
            sock.close()
            raise


class MasterConnection:
    """A connection whose first report decides where the frames start.

    A master takes the last report of its first read for the first one. So the same number is
    repeated until a frame came.

    :ivar heard_s: when bytes came last, by the monotonic clock
    :ivar has_answered: whether a frame came
    """

    def __init__(
        self, sock: socket.socket, asked: int, heartbeat_s: float, silence_s: float
    ) -> None:
        """Report ``asked``; raises ``OSError``."""
        # With a timeout of its own, a socket makes three system calls for each of ours.
        sock.setblocking(False)
        self._sock = sock
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable.register(sock, select.POLLOUT)
        self._asked = asked
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self._stream = FrameStream()
        self.has_answered = False
        self._reported = asked
        self.heard_s = time.monotonic()
        self._send(asked)

    def receive(self, timeout_s: float) -> list[HaFrame]:
        """The frames that are whole by now; empty if none is in time.

        Their bodies are valid until the next call. Raises ``OSError`` if the connection ended or
        the master is silent, and :class:`~lakelog_replication.wire.WireError`.
        """
        count = self._read(timeout_s)
        if count is None:
            if time.monotonic() - self.heard_s > self._silence_s:
                raise ConnectionError(f"nothing came for {self._silence_s:g} s")
            return []
        if not count:
            raise ConnectionError("the master closed the connection")
        self.heard_s = time.monotonic()
        frames = self._stream.received(count)
        self.has_answered = self.has_answered or bool(frames)
        return frames

    def _read(self, timeout_s: float) -> int | None:
        """Receive into the stream; ``None`` if nothing comes in time, 0 at the end."""
        room, deadline = self._stream.room(), time.monotonic() + timeout_s
        while True:
            try:
                return self._sock.recv_into(room)
            except _WOULD_BLOCK:
                left = deadline - time.monotonic()
            if left <= 0 or not self._readable.poll(left * 1000):
                return None

    def report(self, offset: int) -> None:
        """Report ``offset`` if that is news, or if the last report is some seconds ago."""
        offset = max(offset, self._reported) if self.has_answered else self._asked
        if offset > self._reported or time.monotonic() - self._spoke_s >= self._heartbeat_s:
            self._send(offset)

    def _send(self, offset: int) -> None:
        data = report(offset)
        while data:
            try:
                data = data[self._sock.send(data) :]
            except _WOULD_BLOCK:
                if not self._writable.poll(self._silence_s * 1000):
                    raise ConnectionError(
                        f"no report was taken for {self._silence_s:g} s"
                    ) from None
        self._reported, self._spoke_s = offset, time.monotonic()

    def close(self) -> None:
        """Close; also ends a call of :meth:`receive` in another thread."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
