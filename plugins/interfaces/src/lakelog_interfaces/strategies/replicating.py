"""The replicator, which copies the log elsewhere or fills a replica, and the log as it sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

from lakelog_interfaces.files import File
from lakelog_interfaces.strategies.flushing import Flushable, Outcome

if TYPE_CHECKING:
    from lakelog_format.codec import RecordBatch
    from lakelog_format.message import Body


class CopyProgress(Protocol):
    """How far copies have the log, for all processes of a store; offsets in bytes."""

    @property
    def end(self) -> int:
        """End offset of the bytes that enough copies have acknowledged."""

    @property
    def reachable_end(self) -> int:
        """The end offset that enough of the connected copies have; -1 if too few are connected."""

    def publish(self, reachable_end: int) -> None:
        """Store what enough of the connected copies have, -1 for too few; wake the waiters.

        Only the process that leads calls it.
        """

    def wait(self, end_offset: int, timeout_s: float) -> bool:
        """Wait until enough copies have the log up to ``end_offset``; ``False`` on timeout."""


class ReplicatedLog(Flushable, Protocol):
    """The log's interface to replicators, in each process that appends; thread-safe.

    :ivar copies: how far copies have the log
    :ivar on_synced: to be set; called when a sync of this process has moved ``flushed``
    """

    copies: CopyProgress
    on_synced: Callable[[], None]

    @property
    def waits_for_disk(self) -> bool:
        """Whether the flush strategy lets puts wait until they are durable.

        A replicator that copies durable bytes only then need not sync for its own waiting puts.
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

        The file has its full length; bytes behind ``committed`` mean nothing. The caller closes it.
        Raises :class:`~lakelog.errors.OffsetOutOfRange` if it was deleted, and ``OSError``.
        """

    def wait_moved(self, durable_end: int, committed_end: int, timeout_s: float) -> bool:
        """Wait until ``flushed`` or ``committed`` is beyond the given offset; ``False`` on timeout.

        It may return ``True`` early.
        """


@runtime_checkable
class Replicator(Protocol):
    """Copies appends elsewhere, and lets callers wait for the copies.

    Each process that appends has one. ``answers_at_once`` means the same as for a
    :class:`~lakelog.interfaces.FlushStrategy`.

    It may have ``admit(length: int) -> None``, as ``submit`` comes too late to refuse a put. It is
    called in the thread of a put that waits, before the append of ``length`` bytes, and raises
    :class:`~lakelog.errors.PutRefused` with ``IN_SYNC_REPLICAS_NOT_ENOUGH``. Single puts are then
    made without compiled code.
    """

    def start(self, log: ReplicatedLog) -> None:
        """Begin; called once, before the first append of this process."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Register an append that ended at ``end_offset``; returns what its put waits for.

        Called after the flush strategy's ``submit``, and before the put waits for either.
        """

    def close(self) -> None:
        """Let copies have what is durable, for a limited time, then stop; called once.

        The flush strategy was closed before. Also called after a ``start`` that raised.
        """


@runtime_checkable
class LeadingReplicator(Protocol):
    """A replicator of which one process of a store sends: the one that has the services."""

    def lead(self) -> None:
        """Begin to send copies.

        Called before ``start`` in the process that opens the store first, before a file of the log
        is changed: what cannot be had, such as a port, raises
        :class:`~lakelog.errors.LakelogError` here. Called after ``start`` at a take-over; it then
        must not raise for that, but log it and try again.
        """

    def stop_leading(self) -> None:
        """Stop sending: another process will lead, or opening has failed. May be called twice."""


@attrs.frozen(kw_only=True)
class ReplicaLog:
    """The log of a replica; offsets in bytes from its start. For one thread at a time.

    :ivar log: its ends; ``flushed`` is the end of that which the master cannot lose, and is synced
        here. Its own ``sync`` moves it
    :ivar last_record: where a record starts that only few bytes follow, often the last one; -1
        without one
    :ivar last_timestamp_ms: store time of the last record, in ms since 1970
    :ivar view: gives at most so many bytes at an offset, within one segment; no copy
    :ivar records: the records that start from one offset to another, in runs, in order
    :ivar append: appends, at the end of the log, bytes with the store time of their last record, in
        ms. These must be whole, checked records, or a blank record up to the end of a segment,
        within one segment. Raises :class:`~lakelog.errors.PutRefused` if the log cannot grow now,
        and :class:`~lakelog.errors.StoreFailed`
    :ivar sync: makes all that was appended durable here, and claims nothing; returns its end.
        Raises :class:`~lakelog.errors.StoreFailed`
    :ivar vouch: lets the next ``sync`` claim the bytes before an offset, where a record ends, with
        its store time: the master cannot lose them. The offset is noted durably before it is
        published; it never goes back
    :ivar fail: fails the store for good; returns the error to raise
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

    ``start`` and ``submit`` of :class:`~lakelog.interfaces.Replicator` are of no use to it.
    """

    def begin(self, commitlog: Path) -> None:
        """Note the master in ``lakelog/replica.json``; make the first segment of a new log.

        The process has the store alone. A new log begins at a segment of the master, often not
        at 0. Raises :class:`~lakelog.errors.StoreError` if the master does not say where.

        :param commitlog: the folder of the segments, which may not exist yet
        """

    def receive_into(self, log: ReplicaLog) -> None:
        """Begin to receive; called once, after recovery. ``close`` ends it."""
