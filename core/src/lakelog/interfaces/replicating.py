"""The replicator, which copies the log elsewhere, and the log as it sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from lakelog.files.filesystem import File
from lakelog.interfaces.flushing import Flushable, Outcome


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

    Each process that appends has one. ``answers_later`` and ``answers_at_once`` mean what they mean
    for a :class:`~lakelog.interfaces.FlushStrategy`.

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
