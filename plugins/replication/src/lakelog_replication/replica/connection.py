"""One connection to a master, as its slave: a first report, then frames and further reports."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from lakelog_replication.address import Address
from lakelog_replication.wire import Frame, FrameStream, report

CONNECT_SECONDS: Final = 5.0


class MasterConnection:
    """A connection whose first report decides where the frames start.

    A master takes the last report of its first read for the first one. So the same number is
    repeated until a frame came.

    :ivar heard_s: when bytes came last, by the monotonic clock
    :ivar has_answered: whether a frame came
    """

    def __init__(
        self, master: Address, asked: int, heartbeat_s: float = 5.0, silence_s: float = 20.0
    ) -> None:
        """Connect, and report ``asked``; raises ``OSError``."""
        self._asked = asked
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self._stream = FrameStream()
        self.has_answered = False
        self._reported = asked
        self._sock = socket.create_connection((master.host, master.port), CONNECT_SECONDS)
        try:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.heard_s = time.monotonic()
            self._send(asked)
        except BaseException:  # Ctrl-C too
            self._sock.close()
            raise

    def receive(self, timeout_s: float) -> list[Frame]:
        """The frames that are whole by now; empty if none is in time.

        Their bodies are valid until the next call. Raises ``OSError`` if the connection ended or
        the master is silent, and :class:`~lakelog_replication.wire.WireError`.
        """
        self._sock.settimeout(timeout_s)
        try:
            count = self._sock.recv_into(self._stream.room())
        except TimeoutError:
            if time.monotonic() - self.heard_s > self._silence_s:
                raise ConnectionError(f"nothing came for {self._silence_s:g} s") from None
            return []
        if not count:
            raise ConnectionError("the master closed the connection")
        self.heard_s = time.monotonic()
        frames = self._stream.received(count)
        self.has_answered = self.has_answered or bool(frames)
        return frames

    def report(self, offset: int) -> None:
        """Report ``offset`` if that is news, or if the last report is some seconds ago."""
        offset = max(offset, self._reported) if self.has_answered else self._asked
        if offset > self._reported or time.monotonic() - self._spoke_s >= self._heartbeat_s:
            self._send(offset)

    def _send(self, offset: int) -> None:
        self._sock.settimeout(self._silence_s)
        self._sock.sendall(report(offset))
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
