"""The log of a replica in memory, for tests of receivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Condition
from typing import Final

from lakelog.codec import RecordBatch, decode_run
from lakelog.errors import ReplicaStopped
from lakelog.message import Body
from lakelog_testing.threads import PATIENCE_SECONDS

_PATH: Final = "/replica"


class FakeReceivedLog:
    """A :class:`~lakelog.interfaces.Receivable` of one segment; it checks each call.

    :ivar data: the log from 0 on
    :ivar error: raised by the next ``receive``, in place of an append
    :ivar differs_at: what :meth:`differs` was called with
    :ivar stopped: why :meth:`stop` was called
    """

    minimum = 0

    def __init__(self, data: bytes = b"", *, segment_size_bytes: int = 1 << 20) -> None:
        """Begin with whole records, none of which is durable."""
        self.segment_size_bytes = segment_size_bytes
        self.data = bytearray(data)
        self.flushed = 0
        self.error: Exception | None = None
        self.differs_at: int | None = None
        self.stopped: str | None = None
        self.last_record = -1
        self._changed = Condition()
        for batch in self.records(0, len(data)):
            self.last_record = int(batch.physical_offsets[-1])

    @property
    def appended(self) -> int:
        """End of the log."""
        return len(self.data)

    @property
    def has_ended(self) -> bool:
        """Whether the receiver has stopped the log; nothing may be appended then."""
        return self.stopped is not None or self.differs_at is not None

    def view(self, offset: int, length: int) -> memoryview:
        """At most ``length`` bytes at ``offset``; a copy."""
        assert 0 <= offset < self.appended, f"there is no byte {offset} in this log"
        return memoryview(bytes(self.data[offset : offset + length]))

    def records(self, start: int, end: int) -> Iterator[RecordBatch]:
        """The records that start from ``start``, where one starts, to ``end``."""
        whole = decode_run(bytes(self.data[start:]), start)
        sizes, at = whole.sizes.tolist(), start
        for count, size in enumerate(sizes):
            if at >= end:
                sizes = sizes[:count]
                break
            at += size
        if sizes:
            yield decode_run(bytes(self.data[start:at]), start)

    def receive(self, data: Body) -> int:
        """Append the whole records at the start of ``data``."""
        assert not self.has_ended, "bytes are received after the log was stopped"
        with self._changed:
            self._changed.notify_all()
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            batch = decode_run(data, self.appended)
            length = batch.end_offset - self.appended if len(batch) else 0
            if length:
                self.last_record = int(batch.physical_offsets[-1])
                self.data += memoryview(data)[:length]
        return length

    def vouch(self, offset: int) -> int:
        """Count as durable what is before ``offset``."""
        assert offset <= self.appended, f"{offset} is vouched for, and {self.appended} is the end"
        with self._changed:
            self.flushed = max(self.flushed, offset)
            self._changed.notify_all()
        return self.flushed

    def differs(self, offset: int) -> Exception:
        """Note the offset; return the error."""
        return self._ended(f"differs from {offset} on", offset)

    def stop(self, why: str) -> Exception:
        """Note the reason; return the error."""
        return self._ended(why, None)

    def _ended(self, why: str, offset: int | None) -> Exception:
        with self._changed:
            if offset is None:
                self.stopped = why
            else:
                self.differs_at = offset
            self._changed.notify_all()
        return ReplicaStopped(why, path=_PATH, offset=offset or 0)

    def await_end(self, end: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the log ends at ``end`` or behind it."""
        self._await(lambda: self.appended >= end, patience_seconds)

    def await_flushed(self, end: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until all before ``end`` is durable."""
        self._await(lambda: self.flushed >= end, patience_seconds)

    def await_stop(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the receiver stops the log."""
        self._await(lambda: self.has_ended, patience_seconds)

    def await_error(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until :attr:`error` was raised."""
        self._await(lambda: self.error is None, patience_seconds)

    def _await(self, is_so: Callable[[], bool], patience_seconds: float) -> None:
        with self._changed:
            reached = self._changed.wait_for(is_so, patience_seconds)
        assert reached, f"the log ends at {self.appended}, durable to {self.flushed}"
