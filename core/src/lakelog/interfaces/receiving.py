"""A replicator of a replica: it receives the log of a master in place of puts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from lakelog.codec import RecordBatch
    from lakelog.message import Body


class Receivable(Protocol):
    """The log of a replica; offsets in bytes from its start. For one thread at a time."""

    @property
    def segment_size_bytes(self) -> int:
        """Length of each segment; the master must have the same."""

    @property
    def minimum(self) -> int:
        """First byte of the log."""

    @property
    def appended(self) -> int:
        """End of the log; a record or a segment ends there."""

    @property
    def flushed(self) -> int:
        """The durable end: that which the master cannot lose, and is synced here."""

    @property
    def last_record(self) -> int:
        """Where a record starts that only few bytes follow, often the last one; -1 without one."""

    def view(self, offset: int, length: int) -> memoryview:
        """At most ``length`` bytes at ``offset``, within one segment; no copy."""

    def records(self, start: int, end: int) -> Iterator[RecordBatch]:
        """The records that start from ``start`` to ``end``, in runs, in order."""

    def receive(self, data: Body) -> int:
        """Append the whole records at the start of ``data``, which stands at ``appended``.

        :returns: the number of bytes appended; the rest is the start of a record that is not whole

        Raises :class:`~lakelog.errors.ReplicaStopped` for bytes that are no records of this place,
        :class:`~lakelog.errors.PutRefused` if the log cannot grow now, and
        :class:`~lakelog.errors.StoreFailed`.
        """

    def vouch(self, offset: int) -> int:
        """Sync, and publish as durable, what the master cannot lose: all before ``offset``.

        :returns: the new ``flushed``, which is noted durably before it is published

        Raises :class:`~lakelog.errors.StoreFailed`.
        """

    def differs(self, offset: int) -> Exception:
        """Stop for good: the master's log differs from ``offset`` on, where a record starts.

        If nothing durable differs, the next open cuts the log there.

        :returns: the :class:`~lakelog.errors.ReplicaStopped` that ``close`` raises too
        """

    def stop(self, why: str) -> Exception:
        """Stop for good, and change nothing; return the error, as :meth:`differs`."""


@runtime_checkable
class Receiver(Protocol):
    """A replicator that fills a replica; the store is opened with ``mode="replica"``.

    ``start`` and ``submit`` of :class:`~lakelog.interfaces.Replicator` are of no use to it.
    """

    @property
    def source(self) -> str:
        """The master, as ``HOST:PORT``."""

    def first_offset(self, segment_size_bytes: int) -> int:
        """Where the log of a new replica begins: the start of a segment of the master.

        Raises :class:`~lakelog.errors.StoreError` if the master does not say it.
        """

    def receive_into(self, log: Receivable) -> None:
        """Begin to receive; called once, after recovery. ``close`` ends it."""
