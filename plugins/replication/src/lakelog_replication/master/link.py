"""One slave's connection: its start offset, the frames sent to it, and its reports."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Final

from lakelog.errors import LakelogError
from lakelog.files.filesystem import File
from lakelog.hooks import ReplicatedLog
from lakelog_replication.settings import RocketmqHaSettings
from lakelog_replication.wire import FRAME_HEADER, whole_reports

_READ_BYTES: Final = 1 << 16
_BURST_BYTES: Final = 1 << 20
"""Most bytes sent to one slave before the next one has its turn."""
_SMALL_BYTES: Final = 1 << 13
"""Bodies up to this size are read into memory, and sent with their header by one system call."""
_TLS_BYTES: Final = 1 << 16
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class LinkEnded(LakelogError):
    """The slave closed the connection, or was silent for too long."""


class SlaveRefused(LakelogError):
    """The slave asked for bytes, or reported some, that it cannot have from this log."""


class SlaveLink:
    """The connection; for one thread at a time, except for reading its attributes.

    That thread may be the main thread, where a signal handler may raise after any call. So the
    result of a system call is stored within the same call, by ``list.extend``. Each further change
    of the state makes no call, or can be repeated without harm.

    :ivar address: the slave's IP address, without its port
    :ivar is_learner: whether no put waits for the slave
    :ivar requested: offset of the first report; -1 before that report
    :ivar position: end offset of the last frame whose sending has begun
    :ivar acked: largest offset that the slave reported; -1 before the first report
    :ivar is_blocked: whether the socket takes no more bytes for now

    Offsets are physical offsets in bytes.
    """

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        log: ReplicatedLog,
        settings: RocketmqHaSettings,
        *,
        is_learner: bool,
        now: float,
    ) -> None:
        """Take over a socket that does not block.

        :param address: the slave's IP address
        :param now: seconds of ``time.monotonic``, as in all methods of this class
        """
        self.address = address
        self.is_learner = is_learner
        self.requested = self.position = self.acked = -1
        self.is_blocked = False
        self._sock = sock
        self._tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self._is_handshake_done = self._tls is None
        self._log = log
        self._batch_bytes = settings.batch_bytes
        self._heartbeat_s = settings.heartbeat_interval_ms / 1000
        self._silence_s = settings.silence_timeout_ms / 1000
        self._came = [b""]  # received bytes that were not read as reports yet
        self._received_s = self._sent_s = now
        # The current frame: the unsent part of the header and the unsent length of the body, as of
        # the time when the list was empty; the list has the bytes that each system call sent since.
        self._frame: tuple[bytes, int, list[int]] = (b"", 0, [])
        self._file: File | None = None
        self._file_start = -1

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._sock.fileno()

    @property
    def sent(self) -> int:
        """End offset of the bytes that were sent."""
        header, left, counts = self._frame
        return self.position - min(left, len(header) + left - sum(counts))

    def has_all(self, end: int) -> bool:
        """Whether the slave reported ``end``; for a learner, whether all up to ``end`` was sent."""
        done = self.sent >= end and not self._unsent()[0]
        return self.requested < 0 or (done and (self.is_learner or self.acked >= end))

    # --- reports ---

    def receive(self, end: int, now: float) -> None:
        """Read the reports that the socket received.

        :param end: end offset of the bytes that slaves may have

        Raises :class:`LinkEnded`, :class:`SlaveRefused` and ``OSError``.
        """
        try:
            if not self._handshake():
                return
            self._take(end, now)
            while self._tls is not None and self._tls.pending():
                self._take(end, now)
        except _WOULD_BLOCK:
            return

    def _handshake(self) -> bool:
        """Continue the TLS handshake; return whether it is complete."""
        if self._tls is not None and not self._is_handshake_done:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantWriteError:
                self.is_blocked = True
                return False
            except ssl.SSLWantReadError:
                return False
            self._is_handshake_done = True
        return True

    def _take(self, end: int, now: float) -> None:
        """Receive once, and apply the whole reports; the rest stays for the next call."""
        came = self._came
        if len(came) == 1:  # else the last call was interrupted
            came.extend(map(self._sock.recv, (_READ_BYTES,)))
        if not came[-1]:
            raise LinkEnded("it closed the connection")
        offsets, rest = whole_reports(b"".join(came))
        for offset in offsets:
            self._received_s = now
            if offset < 0:
                continue  # RocketMQ ignores such a report, too
            if self.requested < 0:
                self._begin(offset, end)
            elif offset > self.sent:
                raise SlaveRefused(
                    f"it reports that it has the log up to {offset}, and was sent it up to "
                    f"{self.sent} only"
                )
            self.acked = max(self.acked, offset)
        came[:] = (rest,)

    def _begin(self, offset: int, end: int) -> None:
        """Start the frames at the first report's offset; 0 means the start of the last segment."""
        minimum, committed = self._log.minimum, self._log.committed
        if offset > committed:
            raise SlaveRefused(
                f"diverged: it has a log up to {offset}, and this one ends at {committed}; what it "
                "has beyond was never here, or was lost here. Start it anew with an empty store"
            )
        if 0 < offset < minimum:
            raise SlaveRefused(
                f"it asks for offset {offset}, which was deleted here; this log begins at "
                f"{minimum}. Start it anew with an empty store"
            )
        size = self._log.segment_size_bytes
        self.position = offset or max(minimum, end - end % size)
        self.requested = offset

    # --- frames ---

    def turn(self, end: int, now: float) -> bool:
        """Send frames up to ``end``, or a heartbeat if one is due.

        :returns: whether more can be sent now

        Raises :class:`LinkEnded` if the slave was silent for too long, :class:`SlaveRefused` if the
        next bytes were deleted, and ``OSError``.
        """
        if now - self._received_s > self._silence_s:
            raise LinkEnded(f"no report came for {self._silence_s:g} s")
        if self.is_blocked or self.requested < 0:
            return False
        try:
            return self._send(end, now)
        except _WOULD_BLOCK:
            self.is_blocked = True
            return False

    def due(self, now: float) -> float:
        """Seconds until :meth:`turn` must be called for a heartbeat or the silence timeout."""
        beat = self._sent_s + self._heartbeat_s if self.requested >= 0 else now + self._silence_s
        return max(0.0, min(self._received_s + self._silence_s, beat) - now)

    def writable(self) -> None:
        """Note that the socket takes bytes again."""
        self.is_blocked = False
        self._handshake()

    def _send(self, end: int, now: float) -> bool:
        """Send frames until the socket blocks, the log ends, or the burst is over.

        :returns: whether more can be sent now
        """
        most = self.position + _BURST_BYTES
        while True:
            while (unsent := self._unsent()) != (b"", 0):
                self._send_part(*unsent)
                self._sent_s = now
            is_due = now - self._sent_s >= self._heartbeat_s
            if self.position >= most:
                return self.position < end
            if self.position < end:
                self._begin_frame(end)
            elif is_due:
                self._frame = (FRAME_HEADER.pack(self.position, 0), 0, [])
            else:
                return False

    def _begin_frame(self, end: int) -> None:
        """Begin the frame at ``position``: at most ``batch_bytes``, within one segment."""
        size, position = self._log.segment_size_bytes, self.position
        start = position - position % size
        if self._file is None or start != self._file_start:
            self._close_file()
            self._file, self._file_start = self._log.open_segment(start), start
        length = min(end - position, start + size - position, self._batch_bytes)
        frame = (FRAME_HEADER.pack(position, length), length, list[int]())
        behind = position + length
        self._frame = frame
        self.position = behind  # without a call in between

    def _unsent(self) -> tuple[bytes, int]:
        """The unsent part of the current frame's header, and the unsent length of its body."""
        header, left, counts = self._frame
        if counts:
            done = sum(counts)
            rest = header[done:], left - max(0, done - len(header))
            self._frame = (*rest, [])
            return rest
        return header, left

    def _send_part(self, header: bytes, left: int) -> None:
        """Send a part of the current frame by one system call; a large body by ``sendfile``."""
        at, counts = self.position - left - self._file_start, self._frame[2]
        if not left:
            counts.extend(map(self._sock.send, (header,)))
            return
        assert self._file is not None  # _begin_frame has opened it
        if self._tls is not None or left <= _SMALL_BYTES:
            body = self._file.read_at(at, min(left, _TLS_BYTES))
            if not body:
                raise self._ends_before(at)
            counts.extend(map(self._sock.send, (header + body,)))
        elif header:
            counts.extend(map(self._sock.send, (header,), (socket.MSG_MORE,)))
        else:
            places = (self._sock.fileno(),), (self._file.fileno(),), (at,), (left,)
            counts.extend(map(os.sendfile, *places))
            if not counts[-1]:
                raise self._ends_before(at)

    def _ends_before(self, at: int) -> SlaveRefused:
        assert self._file is not None  # it was read
        return SlaveRefused(f"{self._file.path} ends before its byte {at}")

    # --- end ---

    def close(self) -> None:
        """Close the socket and the segment's file."""
        self._close_file()
        self._sock.close()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
