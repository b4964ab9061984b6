"""The log of a replica: appends whole, checked records, and maintains the durable end.

A master sends bytes before it has synced them. If its machine then loses power, its log is shorter
than its copy, and the master appends other records there. So a voucher determines which bytes the
master cannot lose; only these are durable here, and may land in tables.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, TypeAlias

from lakelog import errors, message
from lakelog.files.identity import ReplicaState, write_replica
from lakelog.format import layout, record_batch
from lakelog.hooks import Context, ReplicaLog
from lakelog_replication.remoting import BrokerPoll, runtime_info
from lakelog_replication.settings import Address, SlaveSettings

MOST_RECORD_BYTES: Final = 64 << 20
"""The longest record that is accepted from a master."""
_LOG: Final = logging.getLogger("lakelog")


_MERGED_S: Final = 0.1
"""Arrivals within this time are merged into one."""
_POLL_S: Final = 0.25


class Receivable:
    """The log of a replica; offsets are physical offsets in bytes. For one thread at a time.

    :ivar segment_size_bytes: length of each segment; the master must have the same
    :ivar synced: end of the bytes that :meth:`sync` has made durable here
    :ivar last_record: start of a record near the end of the log, often the last one; -1 without one
    """

    def __init__(self, log: ReplicaLog, source: str, context: Context) -> None:
        """Prepare to receive behind the end of the recovered log."""
        self._opened = log
        self._log = log.log
        self._source = source
        self._context = context
        self._sealed = context.core.require_record_crc
        self.segment_size_bytes = log.log.segment_size_bytes
        self.last_record = log.last_record
        self.view, self.records = log.view, log.records
        self._last_ms = log.last_timestamp_ms
        self.synced = log.log.flushed
        self._ends = deque([(log.log.appended, self._last_ms)])  # ends that are not vouched for

    @property
    def minimum(self) -> int:
        """Start offset of the log."""
        return self._log.minimum

    @property
    def appended(self) -> int:
        """End of the log; a record or a segment ends there."""
        return self._log.appended

    @property
    def flushed(self) -> int:
        """The durable end: the end of the bytes that the master cannot lose and are synced here."""
        return self._log.flushed

    # --- received bytes ---

    def receive(self, data: message.Body) -> int:
        """Append the whole records at the start of ``data``.

        :param data: bytes of the master's log from ``appended`` on
        :returns: the number of bytes appended; the rest is the start of an incomplete record

        Raises :class:`~lakelog.errors.ReplicaStopped` for bytes that are no records of this place,
        :class:`~lakelog.errors.PutRefused` if the log cannot grow now, and
        :class:`~lakelog.errors.StoreFailed`.
        """
        view, at, offset = memoryview(data), 0, self.appended
        while at < len(view):
            room = self.segment_size_bytes - offset % self.segment_size_bytes
            window = view[at : at + room]
            batch = record_batch.decode_run(window, offset, sealed=self._sealed)
            start, size, last_ms = batch.head(-1) if len(batch) else (0, 0, self._last_ms)
            end = start + size
            length = end + self._blank(window[end:], offset + end, room - end)
            if not length:
                self._check_start(window, offset, room)
                break
            self._opened.append(offset, window[:length], last_ms)  # may raise PutRefused
            if size:
                self.last_record, self._last_ms = offset + start, last_ms
            offset += length
            self._ends.append((offset, last_ms))
            at += length
        return at

    def _blank(self, data: memoryview, offset: int, room: int) -> int:
        """The length of the whole blank record at the start of ``data``; 0 without one."""
        if len(data) < layout.BLANK_MIN_BYTES:
            return 0
        size, magic = layout.BLANK.unpack_from(data)
        if magic != layout.MAGIC_BLANK:
            return 0
        if size != room:
            raise self._other_segments(offset, offset + size)
        return size if len(data) >= size else 0

    def _check_start(self, data: memoryview, offset: int, room: int) -> None:
        """Raise unless ``data`` is the start of an incomplete record."""
        if len(data) < layout.BLANK.size:
            if len(data) == room:
                raise self._no_record(offset)
            return
        size, magic = layout.BLANK.unpack_from(data)
        if magic == layout.MAGIC_BLANK:
            return
        if magic not in (layout.MAGIC_V1, layout.MAGIC_V2) or not 0 < size <= MOST_RECORD_BYTES:
            raise self._no_record(offset)
        if size > room:
            raise self._other_segments(offset, offset + size)
        if len(data) >= size:
            raise self._no_record(offset)

    def _no_record(self, offset: int) -> Exception:
        return self.stop(
            f"the bytes of {self._source} at {offset} are no whole record, or a longer one than "
            f"{MOST_RECORD_BYTES} bytes; check the log of the master there, as with `lakelog "
            "verify`, then open the replica again"
        )

    def _other_segments(self, offset: int, end: int) -> Exception:
        size = self.segment_size_bytes
        return self.stop(
            f"segments have {size} bytes here, and others at {self._source}: what it has from "
            f"{offset} to {end} fits none that ends at {offset - offset % size + size}; begin a "
            "new replica with segment_size_bytes as the master's mappedFileSizeCommitLog"
        )

    # --- durability ---

    def sync(self) -> None:
        """Make all received bytes durable here; raises ``StoreFailed``."""
        if self.synced < self.appended:
            self.synced = self._opened.sync()

    def sync_all(self) -> None:
        """As :meth:`sync`, for any thread."""
        self._opened.sync()

    def vouch(self, offset: int) -> int:
        """Sync, and publish as durable, the bytes that the master cannot lose: up to ``offset``.

        :returns: the new ``flushed``, which is stored durably before it is published

        Raises :class:`~lakelog.errors.StoreFailed`.
        """
        reached = None
        while self._ends and self._ends[0][0] <= offset:
            reached = self._ends.popleft()
        if reached is not None and reached[0] > self.flushed:
            self._opened.vouch(*reached)
        return self._log.sync()

    # --- divergence ---

    def differs(self, offset: int) -> Exception:
        """Stop until the next open: the master's log differs from ``offset`` on.

        If no durable byte differs, the next open cuts the log at ``offset``, the start of a record.

        :returns: the :class:`~lakelog.errors.ReplicaStopped` that ``close`` raises too
        """
        durable, end = self.flushed, self.appended
        if offset < durable:
            return self._stopped(
                f"{self._source} has taken back what it could not lose: its log differs from "
                f"{offset} on, and everything before {durable} counted as durable here, and may be "
                f"in tables. Nothing was changed. If its present log is the right one, cut the "
                f"replica with `lakelog replicate --cut-to {offset}`, then remove the rows with "
                f"physical offsets from {offset} to {durable} from the tables, with `lakelog lake "
                "rewind` from those of lakelog. If this copy is the right one: `lakelog promote`",
                offset,
            )
        files, path = self._context.files, self._context.path
        write_replica(files, path, ReplicaState(self._source, offset))
        return self._stopped(
            f"the log of {self._source} differs from {offset} on, behind what counts as durable "
            f"here ({durable}): the next open cuts the replica there, keeps the {end - offset} "
            "bytes in lakelog/quarantine, and continues",
            offset,
            is_mended=True,
        )

    def stop(self, why: str) -> Exception:
        """Stop until the next open, and change nothing; return the error, as :meth:`differs`."""
        return self._stopped(why, self.appended)

    def _stopped(self, why: str, offset: int, *, is_mended: bool = False) -> Exception:
        path = self._context.path
        return self._opened.fail(
            errors.ReplicaStopped(why, path=path, offset=offset, is_mended=is_mended)
        )


class AgeVoucher:
    """Vouches for bytes that arrived at least ``age_s`` seconds before the last received bytes.

    A new connection starts the time anew: the master may have restarted, and may have written the
    same bytes again without a sync.
    """

    def __init__(self, age_s: float) -> None:
        self._age_s = age_s
        self._came: deque[tuple[float, int]] = deque()  # time of arrival, end offset
        self._end = 0

    def connected(self, end: int, now_s: float) -> None:
        """Note a new connection: start the time of all bytes that are not vouched for anew.

        :param end: end offset of the replica's log
        :param now_s: seconds of ``time.monotonic``
        """
        self._came.clear()
        if end > self._end:
            self._came.append((now_s, end))

    def offset(self, end: int, received_s: float) -> int:
        """The end offset of the bytes that arrived early enough; called often.

        :param end: end offset of the bytes of the replica that are equal to the master's
        :param received_s: time of the last received bytes, in seconds of ``time.monotonic``
        """
        came = self._came
        if end > (came[-1][1] if came else self._end):
            if len(came) > 1 and received_s - came[-2][0] < _MERGED_S:
                came.pop()
            came.append((received_s, end))
        while came and received_s - came[0][0] >= self._age_s:
            self._end = came.popleft()[1]
        return self._end

    def close(self) -> None:
        """Do nothing."""


class FlushedVoucher(BrokerPoll):
    """Vouches for the bytes that the master reports as synced; a thread asks for them.

    A response counts only if the broker has not restarted since the connection was made: only the
    process that sent the bytes is known to have the same ones.
    """

    def __init__(self, broker: Address) -> None:
        self._boot_ms: int | None = None
        self._flushed = 0
        super().__init__(broker, _POLL_S, "lakelog-replica-ask")

    def connected(self, end: int, now_s: float) -> None:  # noqa: ARG002  # the signature of AgeVoucher
        """Forget the responses of the former process."""
        self._boot_ms, self._flushed = None, 0

    def offset(self, end: int, received_s: float) -> int:  # noqa: ARG002  # the signature of AgeVoucher
        """The synced end of the last response."""
        return min(end, self._flushed)

    def ask(self) -> None:
        """Ask for the synced end."""
        info = runtime_info(self._broker)
        if self._boot_ms is None:
            self._boot_ms = info.boot_ms
        elif info.boot_ms == self._boot_ms:
            self._flushed = max(info.flushed, self._flushed)


Voucher: TypeAlias = AgeVoucher | FlushedVoucher
"""Returns the end of the bytes that the master cannot lose; physical offsets in bytes."""


def make_voucher(settings: SlaveSettings) -> Voucher:
    """Build the voucher for ``settings.vouch``; may start a thread.

    Raises :class:`~lakelog.errors.ThreadNotStarted`.
    """
    if settings.vouch == "flushed":
        return FlushedVoucher(Address.parse(settings.broker))
    # With "received", its loss does not matter, or the master cannot lose its page cache.
    return AgeVoucher(0 if settings.vouch == "received" else settings.vouch_age_ms / 1000)
