"""A replicator of a replica: it receives the log of a master in place of puts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

from lakelog.interfaces.replicating import ReplicatedLog

if TYPE_CHECKING:
    from lakelog.codec import RecordBatch
    from lakelog.message import Body


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
