"""The log of a replica in memory, for tests of receivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Condition
from typing import Any, Final, cast

from lakelog.codec import RecordBatch, decode_run
from lakelog.errors import ReplicaStopped
from lakelog.interfaces import ReplicaLog
from lakelog.message import Body
from lakelog_testing.threads import PATIENCE_SECONDS

SEGMENT_BYTES: Final = 1 << 20


class FakeReceivedLog:
    """The log of a replica, of one segment; it checks each call.

    :ivar data: the log from 0 on
    :ivar flushed: the durable end
    :ivar synced: end of the bytes that survive a power cut
    :ivar error: raised by the next ``append``, in place of an append
    :ivar failure: the error with which the receiver has stopped the store
    """

    minimum = 0
    segment_size_bytes = SEGMENT_BYTES

    def __init__(self, data: bytes = b"") -> None:
        """Begin with whole records, none of which is durable."""
        self.data = bytearray(data)
        self.flushed = self.synced = self._vouched = 0
        self.error: Exception | None = None
        self.failure: Exception | None = None
        self._changed = Condition()

    def opened(self) -> ReplicaLog:
        """The log as a receiver gets it."""
        starts = [at for batch in self._records(0, self.appended) for at in batch.physical_offsets]
        return ReplicaLog(
            log=cast("Any", self),  # with the ends and ``sync``; a receiver needs no more
            last_record=int(starts[-1]) if starts else -1,
            last_timestamp_ms=0,
            view=self._view,
            records=self._records,
            append=self._append,
            sync=self._sync,
            vouch=self._vouch,
            fail=self._fail,
        )

    @property
    def appended(self) -> int:
        """End of the log."""
        return len(self.data)

    @property
    def differs_at(self) -> int | None:
        """The offset from which the receiver has found another log at the master."""
        return self.failure.offset if isinstance(self.failure, ReplicaStopped) else None

    def sync(self) -> int:
        """Count as durable the bytes that the receiver has vouched for."""
        with self._changed:
            self.flushed = self._vouched
            self.synced = max(self.synced, self.flushed)
            self._changed.notify_all()
        return self.flushed

    def _sync(self) -> int:
        """Sync all bytes, without counting any of them as durable."""
        self.synced = self.appended
        return self.synced

    def _view(self, offset: int, length: int) -> memoryview:
        """At most ``length`` bytes at ``offset``; a copy."""
        assert 0 <= offset < self.appended, f"there is no byte {offset} in this log"
        return memoryview(bytes(self.data[offset : offset + length]))

    def _records(self, start: int, end: int) -> Iterator[RecordBatch]:
        """The records that start from ``start``, where one starts, to ``end``."""
        whole = decode_run(bytes(self.data[start:]), start)
        ends = (whole.physical_offsets + whole.sizes).tolist()
        inside = [at for at in ends if at <= end] or ends[:1]
        if inside and start < end:
            yield decode_run(bytes(self.data[start : inside[-1]]), start)

    def _append(self, offset: int, data: Body, timestamp_ms: int) -> int:
        """Append whole records."""
        assert self.failure is None, "bytes are appended after the store was stopped"
        assert offset == self.appended, f"{offset} is appended to, and {self.appended} is the end"
        with self._changed:
            self._changed.notify_all()
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            batch = decode_run(data, offset)
            length = memoryview(data).nbytes
            whole = batch.end_offset - offset if len(batch) else 0
            assert whole == length, "these are no whole records"
            assert int(batch.store_timestamps_ms[-1]) == timestamp_ms
            self.data += memoryview(data)
        return self.appended

    def _vouch(self, end_offset: int, timestamp_ms: int) -> None:  # noqa: ARG002  # the seam's
        """Let the next sync count the bytes before ``end_offset`` as durable."""
        assert end_offset <= self.appended, f"{end_offset} is vouched for, beyond {self.appended}"
        assert end_offset >= self._vouched, f"{end_offset} is vouched for, after {self._vouched}"
        self._vouched = end_offset

    def _fail(self, error: Exception) -> Exception:
        """Note the error; return it."""
        with self._changed:
            self.failure = error
            self._changed.notify_all()
        return error

    def await_end(self, end: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the log ends at ``end`` or behind it."""
        self._await(lambda: self.appended >= end, patience_seconds)

    def await_flushed(self, end: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until all before ``end`` is durable."""
        self._await(lambda: self.flushed >= end, patience_seconds)

    def await_stop(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the receiver stops the store."""
        self._await(lambda: self.failure is not None, patience_seconds)

    def await_error(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until :attr:`error` was raised."""
        self._await(lambda: self.error is None, patience_seconds)

    def _await(self, is_so: Callable[[], bool], patience_seconds: float) -> None:
        with self._changed:
            reached = self._changed.wait_for(is_so, patience_seconds)
        assert reached, f"the log ends at {self.appended}, durable to {self.flushed}"
