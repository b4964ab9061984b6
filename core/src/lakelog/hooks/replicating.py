"""The replicator, which copies the log elsewhere or fills a replica, and its view of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from lakelog.files.filesystem import File
from lakelog.hooks.flushing import Flushable, Outcome

if TYPE_CHECKING:
    from lakelog.format.record_batch import RecordBatch
    from lakelog.message import Body
    from lakelog.processes.group_sync import CopiedEnd


class ReplicatedLog(Flushable, Protocol):
    """The log's interface to replicators, in each process that appends; thread-safe.

    The log itself is above this package, and tests of a replicator give a double
    (``lakelog_testing.FakeReplicatedLog``).

    :ivar copies: how far copies have the log
    :ivar on_synced: set by the replicator; called when a sync of this process has moved ``flushed``
    """

    copies: CopiedEnd
    on_synced: Callable[[], None]

    @property
    def waits_for_disk(self) -> bool:
        """Whether the flush strategy lets puts wait until they are durable.

        If so, a replicator that copies only durable bytes need not sync for its own waiting puts.
        """

    @property
    def segment_size_bytes(self) -> int:
        """Length of every segment."""

    @property
    def minimum(self) -> int:
        """Offset of the first byte that is still in the log."""

    @property
    def committed(self) -> int:
        """End offset of the bytes that every process can read from the segments' files."""

    def open_segment(self, start_offset: int) -> File:
        """Open the segment that starts at ``start_offset``, to read or to send from it.

        The file has its full length; bytes behind ``committed`` are undefined. The caller closes
        it. Raises :class:`~lakelog.errors.OffsetOutOfRange` if it was deleted, and ``OSError``.
        """

    def wait_moved(self, durable_end: int, committed_end: int, timeout_s: float) -> bool:
        """Wait until ``flushed`` or ``committed`` is beyond the given offset; ``False`` on timeout.

        It may return ``True`` early.
        """


@runtime_checkable
class Replicator(Protocol):
    """Copies appends elsewhere, and lets callers wait for the copies.

    Each process that appends has one. ``answers_at_once`` means the same as for a
    :class:`~lakelog.hooks.FlushStrategy`.

    It may have ``admit(length: int) -> None``, as ``submit`` comes too late to refuse a put. It is
    called in the thread of a put that waits, before the append of ``length`` bytes, and raises
    :class:`~lakelog.errors.PutRefused` with ``IN_SYNC_REPLICAS_NOT_ENOUGH``. Single puts are then
    made without compiled code.
    """

    def start(self, log: ReplicatedLog) -> None:
        """Begin; called once, before the first append of this process."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Register an append that ended at ``end_offset``; return the outcome of its put.

        Called after the flush strategy's ``submit``, and before the put waits for either.
        """

    def close(self) -> None:
        """Send the durable bytes to the copies, for a limited time, then stop; called once.

        The flush strategy is closed by then. Also called after a ``start`` that raised.
        """


@runtime_checkable
class LeadingReplicator(Protocol):
    """A replicator that sends from one process of a store only: the one with the services."""

    def lead(self) -> None:
        """Begin to send copies.

        The process that opens the store first calls it before ``start``, and before a file of the
        log is changed. A missing resource, such as a port in use, then raises
        :class:`~lakelog.errors.LakelogError`. At a take-over it is called after ``start``. It then
        must not raise for a missing resource, but log the problem and try again.
        """

    def stop_leading(self) -> None:
        """Stop sending: another process will lead, or opening has failed. May be called twice."""


class ReplicaLog(NamedTuple):
    """The log of a replica; offsets in bytes from its start. For one thread at a time.

    :ivar log: the positions of the log; ``flushed`` is the end of the bytes that are synced here
        and that the master cannot lose. ``log.sync`` moves it
    :ivar last_record: start of a record near the end of the log, often the last one; -1 without one
    :ivar last_timestamp_ms: store time of the last record, in ms since 1970
    :ivar view: returns bytes, given an offset and the largest length, within one segment; no copy
    :ivar records: yields the records that start from one offset to another, in runs, in order
    :ivar append: appends bytes at an offset, the end of the log, with the store time of their last
        record, in ms. The bytes must be whole, checked records, or a blank record up to the end of
        a segment, all within one segment. Raises :class:`~lakelog.errors.PutRefused` if the log
        cannot grow now, and :class:`~lakelog.errors.StoreFailed`
    :ivar sync: makes all appended bytes durable here without moving ``flushed``; returns their end.
        Raises :class:`~lakelog.errors.StoreFailed`
    :ivar vouch: states that the master cannot lose the bytes before an offset, where a record ends,
        with the store time of that record in ms. The next ``log.sync`` may then move ``flushed`` up
        to it. The offset is noted durably before it is published, and never decreases
    :ivar fail: fails the store until it is reopened; returns the error to raise
    """

    log: ReplicatedLog
    last_record: int
    last_timestamp_ms: int
    view: Callable[[int, int], memoryview]
    records: Callable[[int, int], Iterator[RecordBatch]]
    append: Callable[[int, Body, int], object]
    sync: Callable[[], int]
    vouch: Callable[[int, int], None]
    fail: Callable[[Exception], Exception]


@runtime_checkable
class Receiver(Protocol):
    """A replicator that fills a replica; the store is opened with ``mode="replica"``.

    ``start`` and ``submit`` of :class:`~lakelog.hooks.Replicator` need do nothing. The store asks
    with ``isinstance`` whether a plugin's replicator is one.
    """

    def begin(self, commitlog: Path) -> None:
        """Note the master in ``lakelog/replica.json``; make the first segment of a new log.

        No other process has the store open. A new log begins at a segment of the master, often not
        at 0. Raises :class:`~lakelog.errors.StoreError` if the master does not send that offset.

        :param commitlog: the folder of the segments, which may not exist yet
        """

    def receive_into(self, log: ReplicaLog) -> None:
        """Begin to receive; called once, after recovery. ``close`` ends it."""
