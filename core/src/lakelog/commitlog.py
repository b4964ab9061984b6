"""The commit log: appends encoded batches under one lock, and makes them durable on request.

The lock is held for placing and copying alone; encoding comes before it, waiting after it.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import Final

from lakelog.codec.encoded import EncodedBatch
from lakelog.errors import LakelogError, PutRefused
from lakelog.health import Health
from lakelog.interfaces import AppendCallback
from lakelog.layout import BLANK, MAGIC_BLANK
from lakelog.pages.positionspage import APPENDED
from lakelog.positions import Confirmations, OpenPut, Positions
from lakelog.queueoffsets import Queue, QueueOffsets
from lakelog.segments import Segments
from lakelog.status import AppendStatus, PutStatus
from lakelog.yieldlock import YieldLock

# Members of an enumeration cost a tenth of a microsecond each time in Python 3.11.
_PUT_OK: Final = AppendStatus.PUT_OK
_END_OF_FILE: Final = AppendStatus.END_OF_FILE
_REFUSALS = {
    AppendStatus.END_OF_FILE: (PutStatus.MESSAGE_SIZE_EXCEEDED, "it does not fit into a segment"),
    AppendStatus.MESSAGE_SIZE_EXCEEDED: (
        PutStatus.MESSAGE_SIZE_EXCEEDED,
        "a record is larger than max_message_size_bytes allows",
    ),
    AppendStatus.PROPERTIES_SIZE_EXCEEDED: (
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        "the properties are too long once the offsets in light queues stand in them",
    ),
    AppendStatus.UNKNOWN_ERROR: (PutStatus.UNKNOWN_ERROR, "the append callback gave up"),
}
_IN_A_PUT: Final = "a put inside of a put: the handler of a signal cannot append to the log"


class CommitLog:
    """The log of one owner.

    :ivar positions: how far it has come
    :ivar last_timestamp_ms: store time of the last message; never goes back
    :ivar staged: whether bytes reach the page cache only by ``commit``
    :ivar flushed_timestamp_ms: store time of a message that is durable, and all before it; never
        ahead of ``positions.flushed``
    """

    def __init__(  # each is a collaborator of its own
        self,
        segments: Segments,
        positions: Positions,
        confirmations: Confirmations,
        queue_offsets: QueueOffsets,
        callback: AppendCallback,
        health: Health,
        busy_timeout_ms: int,
        last_timestamp_ms: int,
    ) -> None:
        self.segments = segments
        self.positions = positions
        self.last_timestamp_ms = last_timestamp_ms
        self.staged = segments.staged
        self.flushed_timestamp_ms = last_timestamp_ms
        self._confirmations = confirmations
        self._queue_offsets = queue_offsets
        self._place = callback.place
        self._health = health
        self._busy_seconds = busy_timeout_ms / 1000
        self._lock = YieldLock()
        self._take, self._release = self._lock.take, self._lock.release
        self._locked_since = 0.0
        self._sync_lock = Lock()
        self._commit_lock = Lock()

    # --- append ---

    def append(self, batch: EncodedBatch, put: OpenPut) -> int:
        """Put ``batch`` at the end of the log; the offset behind it.

        :param put: an empty one, which has that offset, too, if ``batch`` is in the log, also where
            an exception of a signal's handler comes: who gave it has to end it then

        Raises :class:`~lakelog.errors.PutRefused` when nothing of it is in the log, and
        :class:`~lakelog.errors.StoreFailed` when that cannot be known.
        """
        if self._locked_since and self._lock.is_mine():
            raise PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, _IN_A_PUT)
        try:
            if not self._take(False):
                self._wait_for_lock()
            self._locked_since = time.monotonic()
            if self._health.refusal is not None:
                raise self._health.refused()
            end = self._append(batch, put)
        except BaseException as error:
            if self._lock.is_mine():
                self._thrown_out(put, error)
            raise
        self._locked_since = 0.0
        self._release()
        return end

    def _thrown_out(self, put: OpenPut, error: BaseException) -> None:
        """Let go. Nobody knows how far an append had come that anything unforeseen cut short."""
        if not put and self._confirmations.cancel(put) and not isinstance(error, LakelogError):
            why = f"an append was interrupted by {type(error).__name__}"
            self._health.fail(RuntimeError(why))
        self._locked_since = 0.0
        self._release()

    def _wait_for_lock(self) -> None:
        """Wait on, unless it is one append that takes all the time."""
        while not self._lock.acquire(self._busy_seconds):
            held = time.monotonic() - (self._locked_since or time.monotonic())
            if held > self._busy_seconds:
                raise PutRefused(
                    PutStatus.OS_PAGE_CACHE_BUSY,
                    f"another append has taken {held:.1f} s (os_page_cache_busy_timeout_ms)",
                )

    def _append(self, batch: EncodedBatch, put: OpenPut) -> int:
        now_ms = time.time_ns() // 1_000_000
        if now_ms < self.last_timestamp_ms:  # noqa: PLR1730  # max() costs three times as much
            now_ms = self.last_timestamp_ms
        segments, position = self.segments, self.positions.appended
        remaining = segments.active_offset + segments.size_bytes - position
        status = self._place(batch, position, remaining, self._queue_offsets, now_ms)
        if status is _END_OF_FILE:
            status, position = self._roll_and_place(batch, now_ms)
        if status is not _PUT_OK:
            raise PutRefused(*_REFUSALS[status])
        end, positions = position + len(batch.buffer), self.positions
        if end > segments.reserved_offset:
            self._reserve(position, end)
        self._confirmations.begin(put)
        self._write(position, batch.buffer)
        batch.advance(self._queue_offsets)
        positions.appended = positions.words[APPENDED] = end  # behind the bytes: see whole_end()
        put.append(end)  # no exception of a signal's handler comes between these two
        self.last_timestamp_ms = now_ms  # behind `appended`: sync() reads them the other way round
        return end

    def _write(self, position: int, data: bytearray | bytes) -> None:
        segments = self.segments
        if position == segments.active_offset:
            segments.prepare_next()
        try:
            segments.active.write(position - segments.active_offset, data)
        except OSError as error:
            raise self._health.fail(error) from error

    def _roll_and_place(self, batch: EncodedBatch, now_ms: int) -> tuple[AppendStatus, int]:
        """Place in the next segment; roll only if ``batch`` fits into it."""
        segments = self.segments
        end = segments.active_offset + segments.size_bytes
        if len(batch.buffer) + BLANK.size > segments.size_bytes:
            return AppendStatus.END_OF_FILE, end
        status = self._place(batch, end, segments.size_bytes, self._queue_offsets, now_ms)
        if status is AppendStatus.PUT_OK:
            self._roll(end, len(batch.buffer))
        return status, end

    def _roll(self, end: int, length: int) -> None:
        segments, position = self.segments, self.positions.appended
        self._reserve(position, position + BLANK.size)
        try:
            opened = segments.prepare_roll(length)
        except OSError as error:
            raise self._no_room(
                f"the next segment of {segments.size_bytes} bytes", error
            ) from error
        self._health.has_room()
        try:
            self._write(position, BLANK.pack(end - position, MAGIC_BLANK))
        except BaseException:  # Ctrl-C too: nobody else could close it
            segments.give_back(opened)
            raise
        segments.roll(opened)
        self.positions.appended = self.positions.words[APPENDED] = end

    def next_offsets(self) -> dict[Queue, int]:
        """The queue offset that the next message of each queue takes; while nobody appends."""
        return self._queue_offsets.snapshot()

    def _reserve(self, position: int, end: int) -> None:
        """See to it that there is room up to ``end`` before anything is written."""
        try:
            if self.segments.reserve(position, end):
                self._health.has_room()
        except OSError as error:
            raise self._no_room(f"{end - position} more bytes of the log", error) from error

    def _no_room(self, what: str, error: OSError) -> PutRefused:
        why = f"no room for {what}: {error}"
        self._health.lacks_room(why)
        return PutRefused(PutStatus.CREATE_MAPPED_FILE_FAILED, why)

    def settle(self) -> None:
        """Wait for an append that is under way; none follows once puts are refused."""
        with self._lock:
            pass

    # --- durability: the log as a flush strategy sees it ---

    @property
    def appended(self) -> int:
        """End of what was appended."""
        return self.positions.appended

    @property
    def flushed(self) -> int:
        """End of what is durable."""
        return self.positions.flushed

    def commit(self) -> int:
        """Hand staged bytes to the page cache; the end of what others see."""
        with self._commit_lock:
            if self._health.failure is not None:
                raise self._health.failed()
            try:
                end = self.segments.commit()
            except OSError as error:
                raise self._health.fail(error) from error
            self.positions.committed = end
        if self.staged:
            self._confirmations.rouse()
        return end

    def sync(self) -> int:
        """Make durable what was appended before the call; the new ``flushed``.

        After one failure every later call fails too: what was not durable by then never counts.
        """
        with self._sync_lock:
            if self._health.failure is not None:
                raise self._health.failed()
            if self.positions.appended > self.positions.flushed:
                self._sync()
            return self.positions.flushed

    def _sync(self) -> None:
        """What was appended meanwhile may be durable or not: it counts with the next sync."""
        stamp, end = self.last_timestamp_ms, self.positions.appended
        committed = self.commit()
        begun = time.perf_counter_ns()
        try:
            self.segments.sync()
        except OSError as error:
            raise self._health.fail(error) from error
        self.positions.count_sync((time.perf_counter_ns() - begun) // 1000)
        self.positions.flushed = min(end, committed)
        if committed >= end:
            self.flushed_timestamp_ms = stamp
