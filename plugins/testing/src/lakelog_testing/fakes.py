"""Logs that a test directs, in memory, in segment files and of a replica; a clock and a cleaner.

The clock is advanced by the test; the cleaner deletes all but the newest segments.
"""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition
from typing import Any, Final, cast

import attrs

from lakelog import hooks
from lakelog.errors import NotOpened, OffsetOutOfRange, ReplicaStopped, StoreFailed
from lakelog.files.filesystem import File, RealFileSystem
from lakelog.format.layout import segment_name
from lakelog.format.record_batch import RecordBatch, decode_run
from lakelog.hooks.hookspecs import hookimpl
from lakelog.message import Body
from lakelog.processes.group_sync import CopiedEnd
from lakelog.runtime.locks import LockFreeEvent
from lakelog_testing.threads import PATIENCE_SECONDS, poll


class FakeLog:
    """A :class:`~lakelog.hooks.Flushable` that a test appends to, stalls and breaks.

    :ivar appended: end of the appended bytes
    :ivar committed: end of the bytes visible to other processes
    :ivar flushed: end of the durable bytes
    :ivar syncs: number of syncs begun
    :ivar sync_seconds: duration of each sync
    :ivar on_synced: called after each sync
    :ivar lacking: number of the next syncs for which a file cannot be opened
    :ivar staged: whether it acts like a staged writer: commits happen only on request
    """

    def __init__(self, *, staged: bool = False) -> None:
        self.staged = staged
        self.sync_seconds = 0.0
        self.appended = 0
        self.committed = 0
        self.flushed = 0
        self.syncs = 0
        self.lacking = 0
        self.on_synced: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._open.set()
        self._broken = self._failed = False
        self._turn = threading.Lock()

    def append(self, size: int = 100) -> int:
        """Append ``size`` bytes; returns the end of the log."""
        with self._lock:
            self.appended += size
            return self.appended

    def commit(self) -> int:
        """Commit everything appended to the page cache."""
        with self._lock:
            self.committed = self.appended
            return self.committed

    def sync(self) -> int:
        """Make earlier appends durable; blocks while stalled, raises when broken."""
        with self._lock:
            self.committed = end = self.appended
            self.syncs += 1
        time.sleep(self.sync_seconds)
        self._open.wait()
        if self.lacking:
            self.lacking -= 1
            error = OSError(errno.EMFILE, "this test has no more descriptors")
            raise NotOpened("it cannot be opened", path="/segment", error=error)
        if self._broken:
            self._failed = True
            raise self._failure()
        with self._lock:
            self.flushed = max(self.flushed, end)
        self.on_synced()
        return self.flushed

    def try_sync(self) -> bool:
        """Sync, unless another thread is in this call."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self.flushed < self.appended:
                self.sync()
        finally:
            self._turn.release()
        return True

    def wait_flushed(self, end_offset: int, timeout_s: float, ask: Callable[[], object]) -> bool:
        """Poll until everything before ``end_offset`` is durable."""

        def is_flushed() -> bool:
            if self.flushed < end_offset and self._failed:
                raise self._failure()
            if self.flushed < end_offset and not self._turn.locked():
                ask()
            return self.flushed >= end_offset

        return poll(is_flushed, timeout_s)

    @staticmethod
    def _failure() -> StoreFailed:
        error = StoreFailed("the disk of this test is broken; reopen the store")
        error.__cause__ = OSError(errno.EIO, "this test's disk fails")
        return error

    def break_disk(self) -> None:
        """Make this and every later sync fail."""
        self._broken = True

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Make every sync wait until :meth:`release` or the end of the ``with`` block."""
        self._open.clear()
        with self.released_behind():
            yield
        self.release()

    @contextmanager
    def released_behind(self) -> Iterator[None]:
        """Release the disk if the block fails; otherwise waiting threads would hang the test."""
        try:
            yield
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release waiting syncs."""
        self._open.set()

    def await_sync(self, patience_seconds: float) -> None:
        """Wait until a sync has begun, with its end determined."""
        assert poll(lambda: self.syncs > 0, patience_seconds), "no sync has begun"


class FakeReplicatedLog(FakeLog):
    """A :class:`~lakelog.hooks.ReplicatedLog` that a test appends to, stalls and cuts.

    :ivar folder: the folder of the segments
    :ivar segment_size_bytes: length of each segment
    :ivar minimum: offset of the first byte that is still there; see :meth:`remove_first`
    :ivar waits_for_disk: whether a flush strategy syncs for the puts
    :ivar copies: the words about copies as in the shared page, in memory of this process
    """

    def __init__(self, folder: Path, *, segment_size_bytes: int = 1 << 16) -> None:
        super().__init__()
        self.folder = folder
        self.segment_size_bytes = segment_size_bytes
        self.minimum = 0
        self.waits_for_disk = False
        self.copies = CopiedEnd(memoryview(bytearray(64)), 0)
        self.bytes = bytearray()
        self._random = random.Random(1)
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, size: int = 100) -> int:
        """Append ``size`` random bytes, which are committed at once; returns the end of the log."""
        data = self._random.randbytes(size)
        with self._lock:
            start = len(self.bytes)
            self.bytes += data
            step = self.segment_size_bytes
            for at in range(start - start % step, start + size, step):
                path = self.folder / segment_name(at)
                with path.open("r+b" if path.exists() else "w+b") as file:
                    file.write(self.bytes[at : at + step])
                    file.truncate(step)
            self.appended = self.committed = len(self.bytes)
            return self.appended

    def remove_first(self) -> None:
        """Delete the first segment."""
        first, self.minimum = self.minimum, self.minimum + self.segment_size_bytes
        (self.folder / segment_name(first)).unlink()

    def open_segment(self, start_offset: int) -> File:
        """Open a segment's file; raises ``OffsetOutOfRange`` for a deleted one."""
        if start_offset >= self.minimum:
            with suppress(FileNotFoundError):
                return RealFileSystem().open(self.folder / segment_name(start_offset))
        raise OffsetOutOfRange(f"offset {start_offset} was deleted", offset=start_offset)

    def wait_moved(self, durable_end: int, committed_end: int, timeout_s: float) -> bool:
        """Poll until a position is beyond the given one."""
        return poll(lambda: self.flushed > durable_end or self.committed > committed_end, timeout_s)


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

    def opened(self) -> hooks.ReplicaLog:
        """The log as a receiver gets it."""
        starts = [at for batch in self._records(0, self.appended) for at in batch.physical_offsets]
        return hooks.ReplicaLog(
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

    def _vouch(self, end_offset: int, timestamp_ms: int) -> None:  # noqa: ARG002  # the signature of ReplicaLog.vouch
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


# --- a clock and a cleaner ---

_CLOCK_PATIENCE_SECONDS: Final = 30.0
_AT_ONCE: Final = hooks.DeletionRate(interval_ms=0)
_LOOK_SECONDS: Final = 0.005
"""Polling interval for the event of a waiter, whose setting does not notify the clock."""


class FakeClock(hooks.Clock):
    """Pass it to ``lakelog.open(path, clock=...)``: delays, retries and maintenance follow it.

    Store times of messages do not use it.

    :param now_ms: initial time in ms since 1970; by default the machine's
    :param instant: whether waits return at once and advance the clock themselves
    """

    def __init__(self, now_ms: int | None = None, *, instant: bool = False) -> None:
        self._now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._passed_ms = 0
        self._instant = instant
        self._waiting: list[int] = []
        self._waits = 0
        self._changed = Condition()

    def now_ms(self) -> int:
        """The clock's time."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """The time by which it was advanced; :meth:`set_back` does not count."""
        return self._passed_ms

    def wait(self, stop: LockFreeEvent, ms: int) -> bool:
        """Wait until the clock was advanced by ``ms`` in total, or ``stop`` is set."""
        if self._instant:
            self.advance(ms)
            return stop.is_set()
        with self._changed:
            due = self._passed_ms + ms
            self._waiting.append(due)
            self._waits += 1
            self._changed.notify_all()
            while self._passed_ms < due and not stop.is_set():
                self._changed.wait(_LOOK_SECONDS)
            self._waiting.remove(due)
            return stop.is_set()

    def advance(self, ms: int) -> None:
        """Advance the clock, and wake waits that are due."""
        with self._changed:
            self._passed_ms += ms
            self._now_ms += ms
            self._changed.notify_all()

    def set_back(self, ms: int) -> None:
        """Set the time back, as an operator may; waits are unaffected."""
        self._now_ms -= ms

    def advance_and_settle(self, ms: int) -> None:
        """Advance until the one waiting thread has done all due work, and waits again.

        The clock advances from wait to wait, so that no round is skipped. Raises ``TimeoutError``
        if no thread waits.
        """
        target = self._passed_ms + ms
        waits = 0
        while (due := self._next_due(waits)) <= target:
            waits = self._waits
            self.advance(due - self._passed_ms)
        self.advance(target - self._passed_ms)

    def _next_due(self, waits: int) -> int:
        """The end of a wait that is there, and that began after ``waits`` others."""
        with self._changed:
            has_begun = self._changed.wait_for(
                lambda: bool(self._waiting) and self._waits > waits, _CLOCK_PATIENCE_SECONDS
            )
            if not has_begun:
                raise TimeoutError("no thread waits for the clock")
            return self._waiting[0]


@attrs.define(eq=False)
class SurplusCleaner:
    """Use it with ``lakelog.open(path, plugins=[SurplusCleaner()], cleaner="surplus")``.

    :ivar keep: number of the newest sealed segments to keep
    """

    keep: int = 0
    pace: hooks.DeletionRate = _AT_ONCE
    remove_empty_queues: bool = False

    def choose(
        self,
        segments: Sequence[hooks.SegmentInfo],
        situation: hooks.CleaningContext,  # noqa: ARG002  # required by Cleaner
    ) -> Sequence[hooks.Deletion]:
        """All but the newest, regardless of disks and clock."""
        surplus = segments[: max(0, len(segments) - self.keep)]
        return [hooks.Deletion(each.start_offset, "surplus") for each in surplus]

    @hookimpl
    def lakelog_cleaners(self) -> list[hooks.Factory]:
        """Offer itself."""
        kind, settings = hooks.Kind.CLEANER, hooks.NoSettings
        return [hooks.Factory(kind, "surplus", settings, lambda _section, _context: self)]
