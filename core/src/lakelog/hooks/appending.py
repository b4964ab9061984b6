"""The strategies of a put: the append callback, the writer, the flush strategy, the replicator.

The callback encodes messages as records, and the writer writes them. The flush strategy decides
when bytes are durable. The replicator copies the log elsewhere, or fills a replica. The outcomes
that puts wait for are here too, and what the last two see of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from lakelog.files.filesystem import File
from lakelog.results import AppendStatus, PutStatus

if TYPE_CHECKING:
    from lakelog.format.encoder import EncodedBatch
    from lakelog.format.queue_offsets import QueueOffsets
    from lakelog.format.record_batch import RecordBatch
    from lakelog.message import Body, Message, StoredMessage
    from lakelog.processes.group_sync import CopiedEnd


@runtime_checkable
class AppendCallback(Protocol):
    """Encodes messages as records.

    A callback that changes bodies before it stores them also implements :class:`BodyDecoder`.
    """

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        """Encode messages outside the append lock, except for fields that depend on the position.

        Raises :class:`~lakelog.errors.IllegalMessage`.
        """

    def place(
        self,
        batch: EncodedBatch,
        position: int,
        remaining: int,
        queue_offsets: QueueOffsets,
        now_ms: int,
    ) -> AppendStatus:
        """Fill in the fields that depend on the position, inside the append lock.

        Must read ``queue_offsets`` without changing it: after the write, the store lets the batch
        advance it.

        :param position: physical offset of the batch, in bytes
        :param remaining: bytes left in the segment
        :param now_ms: the store time, in ms since 1970
        :returns: ``PUT_OK`` if ``batch.buffer`` is ready to be written; ``END_OF_FILE`` if it does
            not fit into this segment; another status if it fits into none
        """


@runtime_checkable
class BodyDecoder(Protocol):
    """An append callback that changes bodies before it stores them, by compression or encryption.

    Stores that are open for reading create one too, with ``context.read_only``.
    """

    def decode(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """The same messages, in order, with their original bodies.

        Each gets another ``body``, and another ``sys_flag`` where that describes the body. All
        other fields stay, including ``body_crc``, which covers the stored body. Messages that this
        callback did not encode, such as older ones, are returned unchanged.

        Called from any thread, with the messages of one read. Dispatchers, recovery, ``verify`` and
        ``repair`` use stored bytes and never call it. An exception ends the read.
        """


class CommitRules(NamedTuple):
    """When the bytes of a staged writer are committed to the page cache without a request.

    :ivar interval_ms: interval between two checks
    :ivar least_pages: least number of uncommitted pages of 4 KiB for a commit
    :ivar thorough_interval_ms: after this time without a commit, fewer pages are committed too
    """

    interval_ms: int = 200
    least_pages: int = 4
    thorough_interval_ms: int = 200


class WriterTraits(NamedTuple):
    """The properties of a writer on which the store depends.

    :ivar alignment_bytes: positions and lengths that reach the device are multiples of this
    :ivar staged: whether written bytes reach the page cache only by ``commit``
    :ivar commit: when the bytes of a staged writer are committed; unused by other writers
    :ivar same_bytes: whether the file has exactly the bytes given to ``write``, so that any writer
        can continue it; without it, only this writer opens the store again to write
    """

    alignment_bytes: int = 1
    staged: bool = False
    commit: CommitRules = CommitRules()
    same_bytes: bool = False


@runtime_checkable
class SegmentWriter(Protocol):
    """One open segment file, from its first byte to its close."""

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write ``data`` at ``position`` bytes from the start; readable by ``view`` at once.

        Writes are in order and without gaps, one at a time, while other threads commit and sync.
        The blocks of the file are allocated before. Raises ``OSError``, which fails the store.
        """

    def view(self, position: int, length: int) -> memoryview:
        """Some bytes of the segment, in memory that stays valid when the file is cut or closed.

        So it is a copy, or a view of the writer's own buffers; not a map of the file. It is
        shorter than ``length`` at the end of the file.
        """

    def commit(self) -> int:
        """Write staged bytes to the page cache; return the end visible to other processes.

        The result is a position in the segment, in bytes. Raises ``OSError``.
        """

    def sync(self) -> None:
        """Make everything durable that was committed before this call; raises ``OSError``."""

    def close(self) -> None:
        """Close the file, and end its maps; existing views stay valid."""


@runtime_checkable
class Sealable(Protocol):
    """A segment writer that is notified when its segment is full."""

    def seal(self) -> None:
        """Called after the last write: committed bytes need not be kept in buffers any more."""


@runtime_checkable
class Extendable(Protocol):
    """A segment writer that maps the file for writing; it may map only allocated blocks."""

    def extend(self, position: int, end: int) -> None:
        """Called once blocks are allocated from ``position``, that of the next write, to ``end``.

        Called before the first write, and again before a write that needs more blocks. The whole
        page of ``position`` is allocated. May raise ``OSError``, and is then called again.
        """


@runtime_checkable
class Mapped(Protocol):
    """A segment writer whose file compiled code may write directly, without a call of the writer.

    Its ``commit`` and ``sync`` must not depend on these bytes, which are in the page cache.
    """

    def writable_map(self) -> tuple[memoryview, int, int, int]:
        """A map of allocated blocks, the position of its first byte, a descriptor, and a length.

        Called after each ``extend``. The caller writes only at the end of the log. It writes
        records of at least this length, in bytes, to the descriptor by ``pwrite``; it may write
        all records so if each is synced.
        """


@runtime_checkable
class Writer(Protocol):
    """Opens segment files for appending."""

    traits: WriterTraits

    def open(self, file: File, size_bytes: int, position: int) -> SegmentWriter:
        """Open a writer for ``file`` of ``size_bytes``, which holds ``position`` bytes of records.

        The writer closes the file. Blocks are allocated as the log grows, see :class:`Extendable`.
        The whole file may be mapped for reading; bytes without blocks read as zeros.
        """


class Pending(Protocol):
    """A future status; ``concurrent.futures.Future[PutStatus]`` implements it."""

    def done(self) -> bool:
        """Whether the status is known."""

    def result(self, timeout: float | None = None) -> PutStatus:
        """Wait for the status, or raise its exception.

        :param timeout: in seconds; raises ``TimeoutError``
        """

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Call ``fn`` with this object once the status is known, in any thread."""


Outcome: TypeAlias = "PutStatus | Pending"
"""A status that is known at once, or a future one."""


class AppendedPut(Protocol):
    """An asynchronous put whose message is in the log.

    :ivar end_offset: end of the bytes that must be durable
    :ivar deadline: for the strategy's own use
    """

    end_offset: int
    deadline: float

    def done(self) -> bool:
        """Whether it is settled."""


Settle: TypeAlias = (
    "Callable[[Sequence[Any], PutStatus | Exception, Callable[[Any], object]], object]"
)
"""Settles many :class:`AppendedPut` with one status or error, and runs their callbacks. A callback
that waits for a put in this thread first calls the third argument with it.
"""


class Flushable(Protocol):
    """The log's interface to flush strategies; thread-safe.

    The log itself is above this package, and tests of a strategy give a double
    (``lakelog_testing.FakeLog``).
    """

    @property
    def staged(self) -> bool:
        """Whether appended bytes reach the page cache only by ``commit``."""

    @property
    def appended(self) -> int:
        """End offset of the last append, in bytes from the start of the log."""

    @property
    def flushed(self) -> int:
        """End offset of the durable part of the log."""

    def commit(self) -> int:
        """Write staged bytes to the page cache; returns their end offset."""

    def sync(self) -> int:
        """Make everything appended before the call durable; return the new ``flushed``.

        The result may be lower if a signal handler calls this while its thread is about to sync.

        Raises :class:`~lakelog.errors.StoreFailed`. Bytes that were not durable by then never count
        as durable, and every waiter must fail.
        """

    def try_sync(self) -> bool:
        """Like :meth:`sync`, unless a thread of any process is syncing; returns whether it synced.

        Also returns ``True`` if there was nothing to sync. Raises
        :class:`~lakelog.errors.StoreFailed`.
        """

    def wait_flushed(self, end_offset: int, timeout_s: float, ask: Callable[[], object]) -> bool:
        """Wait until the log is durable up to ``end_offset``; returns ``False`` on timeout.

        The calling thread syncs nothing itself, so that a sync that hangs cannot block it.

        :param ask: called if no thread is syncing; it must make another thread call
            :meth:`try_sync`, and is called again if that did not sync

        Raises :class:`~lakelog.errors.StoreFailed`.
        """


@runtime_checkable
class FlushStrategy(Protocol):
    """Decides when bytes become durable, and lets callers wait for that.

    ``submit_later(put, settle)`` may be defined, as in ``group-commit``. It registers an
    :class:`AppendedPut` that waits, without blocking, and calls :data:`Settle` once for all puts
    that are settled together. Without it, or where puts wait for copies, a thread submits
    asynchronous puts.

    ``wait(end_offset)`` may be defined, as in ``group-commit``. It returns the status of a put that
    waits, or raises its error; or it returns ``None`` without effect, and ``submit`` follows.

    ``answers_at_once = True`` may be set if ``submit`` does nothing but return ``PUT_OK``; the
    store then skips the call. The attribute is read after ``start``.

    ``waits_for_disk = True`` must be set if puts wait until they are durable. Reads then end at the
    durable end, so that no message that was read can vanish. A put that does not wait becomes
    readable with the next sync, which the strategy must trigger. Without the attribute, reads
    return everything appended.

    ``timeout_ms`` may be set to the longest wait of a put; the error of a late put states it.
    """

    def start(self, log: Flushable) -> None:
        """Begin; called once, before the first append."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Register an append that ended at ``end_offset``; return the outcome of its put.

        Called outside the append lock, once per put or batch. Must not wait if ``wait`` is
        ``False``.
        """

    def close(self) -> None:
        """Flush the remaining bytes, then stop; called once, after the last append.

        Also called after a ``start`` that raised, for example because no thread could be started.
        """


@runtime_checkable
class Wakeable(Protocol):
    """A flush strategy that is notified of commits of a staged writer."""

    def wake(self) -> None:
        """Check whether committed bytes are due for a flush. Must not block."""


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

    Each process that appends has one. ``answers_at_once`` and ``timeout_ms`` mean the same as for
    a :class:`~lakelog.hooks.FlushStrategy`.

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
