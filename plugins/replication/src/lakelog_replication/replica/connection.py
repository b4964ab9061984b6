"""A slave's connection to its master, and the search for the place where their logs differ.

A connection is a first report, then frames and further reports. The protocol has no message for a
difference: a master that lost the end of its log sends other bytes, or none. So single records are
requested as samples. Two different records at one offset differ in their store time, so they are
not equal by chance. Hence all bytes before an equal record are equal, too, and a binary search is
possible.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from enum import Enum, unique
from typing import Final

import attrs

from lakelog_replication.replica.receivable import Receivable
from lakelog_replication.settings import Address, RocketmqHaSettings
from lakelog_replication.wire import REPORT, FrameStream, HaFrame

CONNECT_SECONDS: Final = 5.0
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_TICK_S: Final = 0.2
_ATTEMPTS: Final = 3


@attrs.frozen
class Dialer:
    """Connects to a master: to follow its log, or to request parts of it, each on a new connection.

    :ivar is_over: returns whether to give up; requests then raise ``ConnectionAbortedError``
    :ivar tls: for TLS between lakelog stores; RocketMQ has no TLS here
    """

    settings: RocketmqHaSettings
    is_over: Callable[[], bool]
    tls: ssl.SSLContext | None

    def dial(self, asked: int) -> MasterConnection:
        """Connect, and ask for the log from the physical offset ``asked`` on; raises ``OSError``.

        A master of RocketMQ's protocol takes 0 as the start of its last segment.
        """
        master = Address.parse(self.settings.master)
        sock = socket.create_connection((master.host, master.port), CONNECT_SECONDS)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_hostname=master.host)
            return MasterConnection(sock, asked, self.settings)
        except BaseException:  # Ctrl-C too
            sock.close()
            raise

    def last_segment(self) -> int:
        """The start of the master's last segment; raises ``OSError``."""
        with closing(self.dial(0)) as connection:
            return self._frames(connection)[0].offset

    def has_bytes_at(self, offset: int) -> bool:
        """Whether the master's log has bytes at the physical ``offset``; raises ``OSError``.

        A lakelog master closes a connection that asks for bytes that it lacks. A network failure
        looks the same. So a closed connection counts only if each attempt fails and another request
        in between is answered.
        """
        for _ in range(_ATTEMPTS):
            try:
                with closing(self.dial(offset)) as connection:
                    return len(self._frames(connection)[0].body) > 0
            except ConnectionAbortedError:
                raise
            except ConnectionError:
                self.last_segment()
        return False

    def sample(self, log: Receivable, start: int, end: int) -> Sample:
        """Compare the bytes from offset ``start`` to ``end``, within one segment.

        Raises ``OSError``.
        """
        at = max(start, 1)  # 0 would be answered with the last segment
        with closing(self.dial(at)) as connection:
            while at < end:
                try:
                    frames = self._frames(connection)
                except ConnectionAbortedError:
                    raise
                except ConnectionError:
                    if connection.has_answered:
                        raise  # a master that lacks the bytes closes at once
                    return Sample.CLOSED
                for frame in frames:
                    if frame.offset != at:
                        return Sample.OTHER
                    if not len(frame.body):
                        return Sample.NOTHING
                    body = frame.body[: end - at]
                    if log.view(at, len(body)) != body:
                        return Sample.OTHER
                    at += len(body)
                    if at == end:
                        break
        return Sample.SAME

    def _frames(self, connection: MasterConnection) -> Sequence[HaFrame]:
        """The next frames; asks again for the same offset while none comes."""
        while True:
            if self.is_over():
                raise ConnectionAbortedError("the store is being closed")
            frames = connection.receive(_TICK_S)
            if frames:
                return frames
            connection.report(0)


class MasterConnection:
    """A connection whose first report determines the offset of the first frame.

    A master uses the last report of its first read as the first report. So the same offset is
    repeated until a frame was received.

    :ivar received_s: time of the last received bytes, in seconds of ``time.monotonic``
    :ivar has_answered: whether a frame was received
    """

    def __init__(self, sock: socket.socket, asked: int, settings: RocketmqHaSettings) -> None:
        """Report the physical offset ``asked``; raises ``OSError``."""
        # With settimeout, Python makes further system calls for each recv and send.
        sock.setblocking(False)
        self._sock = sock
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable.register(sock, select.POLLOUT)
        self._asked = asked
        self._heartbeat_s = settings.heartbeat_interval_ms / 1000
        self._silence_s = settings.silence_timeout_ms / 1000
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
        data = REPORT.pack(offset)
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


@attrs.frozen
class DivergenceSearch:
    """Compares a replica with its master.

    :ivar last_segment: start offset of the master's last segment
    """

    log: Receivable
    dialer: Dialer
    last_segment: int

    @property
    def is_cleaned(self) -> bool:
        """Whether the master has deleted the bytes that follow the end of the copy.

        Raises ``OSError``.
        """
        end = self.log.appended
        return self.last_segment > end and not self.dialer.has_bytes_at(end)

    def first_difference(self) -> int | None:
        """The end offset of the last common record; ``None`` if the logs do not differ.

        It is the start of the copy if there is no common record. Raises ``OSError`` if the master
        does not answer.
        """
        log, size = self.log, self.log.segment_size_bytes
        starts = range(log.minimum, log.appended, size)
        newest = self._records(starts[-1], log.appended)
        if not newest and len(starts) > 1:
            newest = self._records(starts[-2], log.appended)
        if not newest or self._is_same(newest[-1]):
            return None
        heads = [each for start in starts for each in self._records(start, start + 1)]
        first = self._last_same(heads)
        if first is None:
            return log.minimum
        start = first.start - first.start % size
        last = self._last_same(self._records(start, min(start + size, log.appended)))
        if last == newest[-1]:
            return None  # broken connections had looked like a master without the newest record
        return log.minimum if last is None else last.stop

    def _records(self, start: int, end: int) -> list[range]:
        """The places of the records that start from ``start`` to before ``end``."""
        found = list[range]()
        for batch in self.log.records(start, end):
            starts = batch.physical_offsets
            found += map(range, starts.tolist(), (starts + batch.sizes).tolist())
        return found

    def _last_same(self, records: Sequence[range]) -> range | None:
        """The last record that the master has, too, by bisection."""
        low, high, found = 0, len(records), None
        while low < high:
            middle = (low + high) // 2
            record = records[middle]
            if self._is_same(record):
                low, found = middle + 1, record
            elif self._is_deleted(record):
                low = middle + 1
            else:
                high = middle
        return found

    def _is_same(self, record: range) -> bool:
        """Whether the master has the same record; raises ``OSError``.

        A closed connection counts as in :meth:`Dialer.has_bytes_at`.
        """
        for _ in range(_ATTEMPTS):
            sample = self.dialer.sample(self.log, record.start, record.stop)
            if sample is not Sample.CLOSED:
                return sample is Sample.SAME
            self.dialer.last_segment()
        return False

    def _is_deleted(self, record: range) -> bool:
        """Whether the master may have had the record: it sends no bytes below its first offset."""
        return record.stop <= self.last_segment and not self.dialer.has_bytes_at(
            max(record.start, 1)
        )


@unique
class Sample(Enum):
    """A master's answer for the place of a record."""

    SAME = "the same bytes"
    OTHER = "other bytes"
    NOTHING = "nothing"
    CLOSED = "it closed the connection"
