"""A slave's connection to its master: a first report, then frames and further reports."""

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
    """Connects to a master.

    :ivar heartbeat_s: interval at which a report is repeated
    :ivar silence_s: time without received bytes after which a connection has failed
    :ivar tls: for TLS between lakelog stores; RocketMQ has no TLS here
    """

    master: Address
    heartbeat_s: float
    silence_s: float
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, settings: RocketmqHaSettings) -> Dialer:
        """Return the dialer for ``settings.master``.

        Raises :class:`~lakelog.errors.SettingsError` for files that are no certificates.
        """
        return cls(
            Address.parse(settings.master),
            settings.heartbeat_interval_ms / 1000,
            settings.silence_timeout_ms / 1000,
            tls_context(settings, ssl.Purpose.SERVER_AUTH),
        )

    def dial(self, asked: int) -> MasterConnection:
        """Connect, and ask for the log from the physical offset ``asked`` on; raises ``OSError``.

        A master of RocketMQ's protocol takes 0 as the start of its last segment.
        """
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
    """A connection whose first report determines the offset of the first frame.

    A master uses the last report of its first read as the first report. So the same offset is
    repeated until a frame was received.

    :ivar received_s: time of the last received bytes, in seconds of ``time.monotonic``
    :ivar has_answered: whether a frame was received
    """

    def __init__(
        self, sock: socket.socket, asked: int, heartbeat_s: float, silence_s: float
    ) -> None:
        """Report the physical offset ``asked``; raises ``OSError``."""
        # With settimeout, Python makes further system calls for each recv and send.
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
        self.received_s = time.monotonic()
        self._send(asked)

    def receive(self, timeout_s: float) -> list[HaFrame]:
        """Return the frames that are complete; an empty list if none is within ``timeout_s``.

        Their bodies are valid until the next call. Raises ``OSError`` if the connection ended or
        the master was silent for too long, and :class:`~lakelog_replication.wire.WireError`.
        """
        count = self._read(timeout_s)
        if count is None:
            if time.monotonic() - self.received_s > self._silence_s:
                raise ConnectionError(f"nothing came for {self._silence_s:g} s")
            return []
        if not count:
            raise ConnectionError("the master closed the connection")
        self.received_s = time.monotonic()
        frames = self._stream.received(count)
        self.has_answered = self.has_answered or bool(frames)
        return frames

    def _read(self, timeout_s: float) -> int | None:
        """Receive into the stream; ``None`` on timeout, 0 at the end of the connection."""
        room, deadline = self._stream.room(), time.monotonic() + timeout_s
        while True:
            try:
                return self._sock.recv_into(room)
            except _WOULD_BLOCK:
                left = deadline - time.monotonic()
            if left <= 0 or not self._readable.poll(left * 1000):
                return None

    def report(self, offset: int) -> None:
        """Report ``offset`` if it exceeds the last report, or if a heartbeat is due.

        Raises ``OSError``.
        """
        offset = max(offset, self._reported) if self.has_answered else self._asked
        if offset > self._reported or time.monotonic() - self._report_sent_s >= self._heartbeat_s:
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
        self._reported, self._report_sent_s = offset, time.monotonic()

    def close(self) -> None:
        """Close the connection; this also ends a call of :meth:`receive` in another thread."""
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
