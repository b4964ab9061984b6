"""What a strategy must do: one Protocol per kind, and the little that it is handed.

A strategy gets its collaborators as arguments and never the whole store. It returns decisions;
one place in the store acts on them. Objects are checked against their Protocol once, at open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, unique
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import attrs

from lakelog.checkpoint import CheckpointKeeper
from lakelog.status import AppendStatus, PutStatus

if TYPE_CHECKING:
    from concurrent.futures import Future

    from lakelog.codec import RecordBatch
    from lakelog.codec.encoded import EncodedBatch
    from lakelog.files import File, FileSystem
    from lakelog.message import Message
    from lakelog.queueoffsets import Queue, QueueOffsets
    from lakelog.settings.model import StoreSettings
    from lakelog.units import Units

Outcome: TypeAlias = "PutStatus | Future[PutStatus]"
"""A status known at once, or one that a waiter will be given."""


@unique
class Kind(Enum):
    """The kinds of strategies; the value is the hook that offers them."""

    APPEND_CALLBACK = "lakelog_append_callbacks"
    WRITER = "lakelog_writers"
    FLUSH_STRATEGY = "lakelog_flush_strategies"
    REPLICATOR = "lakelog_replicators"
    DISPATCHER = "lakelog_dispatchers"
    FOLLOWER = "lakelog_followers"
    CLEANER = "lakelog_cleaners"
    DISK_WATCHER = "lakelog_disk_watchers"


@attrs.frozen
class Context:
    """What every factory's ``make`` is handed beside its settings.

    :ivar path: the store directory
    :ivar core: the store's own settings
    :ivar files: the one seam to the operating system's files
    :ivar checkpoint: the file that says up to when things are durable
    :ivar read_only: the store is open for reading: whatever is built stays in memory, and no file
        may be changed or made
    :ivar owner_follows: open for reading beside a living owner that had brought its queues up to
        its log by then, and dispatches in the order of the log
    """

    path: Path
    core: StoreSettings
    files: FileSystem
    checkpoint: CheckpointKeeper = attrs.field(
        default=attrs.Factory(lambda self: CheckpointKeeper(self.files, self.path), takes_self=True)
    )
    read_only: bool = False
    owner_follows: bool = False


@attrs.frozen
class Factory:
    """Offers one strategy.

    :ivar kind: what it is
    :ivar name: how settings choose it, and the name of its own section of settings
    :ivar settings: the attrs class of that section
    :ivar make: builds the strategy from its settings and a :class:`Context`
    :ivar summary: one line for ``lakelog plugins``
    """

    kind: Kind
    name: str
    settings: type[Any]
    make: Callable[[Any, Context], object]
    summary: str = ""


@attrs.frozen
class NoSettings:
    """The section of a strategy that has nothing to set."""


# --- append callback ---------------------------------------------------------------------------


@runtime_checkable
class AppendCallback(Protocol):
    """Turns messages into the bytes of records."""

    def encode(self, messages: Sequence[Message]) -> EncodedBatch:
        """Encode outside the append lock.

        What depends on the place in the log is left open. Raises
        :class:`~lakelog.errors.IllegalMessage`.
        """

    def place(
        self,
        batch: EncodedBatch,
        position: int,
        remaining: int,
        queue_offsets: QueueOffsets,
        now_ms: int,
    ) -> AppendStatus:
        """Fill in what depends on the place, inside the append lock.

        :param position: physical offset at which the batch will stand, in bytes
        :param remaining: bytes left in the segment
        :returns: ``PUT_OK`` when ``batch.buffer`` can be written as it now is; ``END_OF_FILE``
            when it does not fit into this segment; another status when it fits nowhere.
            ``queue_offsets`` is read, never changed: the store lets the batch advance it once the
            bytes are written.
        """


# --- writer ------------------------------------------------------------------------------------


@attrs.frozen
class WriterTraits:
    """What a store must know of a writer.

    :ivar alignment_bytes: positions and lengths that reach the device are multiples of this
    :ivar staged: written bytes reach the page cache only by ``commit``
    :ivar zero_copy_reads: ``view`` gives memory of the file itself, and copies nothing
    """

    alignment_bytes: int = 1
    staged: bool = False
    zero_copy_reads: bool = True


@runtime_checkable
class SegmentWriter(Protocol):
    """One open segment file, from its first byte to its close."""

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Put ``data`` at ``position`` bytes from the start; readable by ``view`` at once."""

    def view(self, position: int, length: int) -> memoryview:
        """Bytes of the segment; the view stays right after the file was deleted or closed."""

    def commit(self) -> int:
        """Hand staged bytes to the page cache; the position up to which others see them."""

    def sync(self) -> None:
        """Make everything durable that was committed before this call began."""

    def close(self) -> None:
        """Let go of the file; views that were given out stay right."""


@runtime_checkable
class Writer(Protocol):
    """Opens segment files for appending."""

    traits: WriterTraits

    def open(self, file: File, size_bytes: int, position: int) -> SegmentWriter:
        """Take over ``file``, fully allocated, with ``position`` bytes of records in it."""


# --- flush strategy and replicator -------------------------------------------------------------


class Flushable(Protocol):
    """The log as a flush strategy sees it."""

    @property
    def appended(self) -> int:
        """End of what was appended, in bytes from the start of the log."""

    @property
    def flushed(self) -> int:
        """End of what is durable."""

    def commit(self) -> int:
        """Hand staged bytes to the page cache; the end of what others see."""

    def sync(self) -> int:
        """Make durable what was appended before the call; the new ``flushed``.

        Raises :class:`~lakelog.errors.StoreFailed`: what was not durable by then never counts
        as durable again, and every waiter must be failed.
        """


@runtime_checkable
class FlushStrategy(Protocol):
    """Decides when bytes become durable, and lets callers wait for it."""

    def start(self, log: Flushable) -> None:
        """Begin; called once, before the first append."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Hear of an append that ended at ``end_offset``; what its put has to wait for.

        Called outside the append lock, once per put or batch. ``wait=False`` must not wait.
        """

    def close(self) -> None:
        """Flush what is left, then stop; called once, after the last append."""


@runtime_checkable
class Replicator(Protocol):
    """Told of appends; lets callers wait for copies elsewhere."""

    def start(self, log: Flushable) -> None:
        """Begin; called once, before the first append."""

    def submit(self, end_offset: int, wait: bool) -> Outcome:
        """Hear of an append that ended at ``end_offset``; what its put has to wait for."""

    def close(self) -> None:
        """Stop; called once, after the last append."""


# --- behind the append -------------------------------------------------------------------------


@runtime_checkable
class Dispatcher(Protocol):
    """Builds something from the log that can be rebuilt from it, such as a queue or an index.

    All calls but reads of what was built come from one thread.

    :ivar directories: the folders of the store directory that hold all that it writes, and
        nothing else; a rebuild makes them anew
    """

    directories: Sequence[str]

    def resume(self, minimum: int, end: int) -> int:
        """Look at what is there; the offset from which the log must be dispatched (again).

        Called once, before the first ``dispatch``. The log holds ``minimum`` to ``end`` bytes;
        what was built from records behind ``end`` is to be forgotten. ``end`` means that nothing
        is missing.
        """

    def dispatch(self, batch: RecordBatch) -> None:
        """Take the next run of records, in log order.

        A run may come again, whole or in part, and must then change nothing. If it raises,
        dispatching stops; the same run comes again once that was seen to.
        """

    def truncate(self, end_offset: int) -> None:
        """Forget everything that stems from records at or behind ``end_offset``."""

    def flush(self) -> None:
        """Make durable what was dispatched before this call; may be called by another thread."""

    def close(self) -> None:
        """Flush, then let go of files."""


@runtime_checkable
class QueueReader(Protocol):
    """A dispatcher that can say which records stand in a queue; reads from any thread."""

    def queues(self) -> Sequence[Queue]:
        """Every queue that is there, in no order."""

    def bounds(self, queue: Queue, minimum: int) -> tuple[int, int] | None:
        """The first queue offset that is there and the next that will be, ``None`` if no queue is.

        :param minimum: the log's first byte; units of records before it are not there
        """

    def units(self, queue: Queue, first: int, count: int) -> Units:
        """At most ``count`` units from queue offset ``first`` on, as they stand, unchecked.

        Empty where ``first`` is outside of the queue. In a queue of batches, from the unit that
        holds ``first`` on.
        """

    def kind(self, queue: Queue) -> str:
        """``SimpleCQ``, or ``BatchCQ`` for a queue of batches."""


@runtime_checkable
class TopicRemover(Protocol):
    """A dispatcher that can forget a topic."""

    def forget_topic(self, topic: str, end_offset: int) -> None:
        """Remove what was built for ``topic``; its records below ``end_offset`` never come back.

        Called between two dispatches, once the tombstone is written.
        """


@runtime_checkable
class KeyIndex(Protocol):
    """A dispatcher that finds records by key; reads from any thread."""

    def offsets(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets of records that may have ``key``, the newest first, lazily.

        Others may be among them: topic and key must be checked. Store times are compared as
        exactly as the index keeps them. Raises :class:`~lakelog.errors.CorruptIndex` where the
        index is damaged, after everything that could be found.
        """


@runtime_checkable
class Follower(Protocol):
    """Reads the log at its own pace, with its own cursor; can never hold up the queues."""

    def start(self) -> None:
        """Begin to follow."""

    def stop(self) -> None:
        """Stop soon, and return when stopped."""


# --- keeping house -----------------------------------------------------------------------------


@attrs.frozen
class SegmentInfo:
    """One segment, as a cleaner sees it.

    :ivar start_offset: offset of its first byte
    :ivar size_bytes: its length
    :ivar last_timestamp_ms: store time of its last message, in ms since 1970
    :ivar readers: views of it that are still held
    :ivar pinned_by: names of followers that still need it
    """

    start_offset: int
    size_bytes: int
    last_timestamp_ms: int
    readers: int = 0
    pinned_by: tuple[str, ...] = ()


@attrs.frozen
class Deletion:
    """A cleaner's decision to delete the segment at ``start_offset``, and why."""

    start_offset: int
    reason: str


@unique
class DiskState(Enum):
    """What a disk-space watcher thinks of the disks."""

    OK = "ok"
    CLEAN = "clean"
    CLEAN_FORCIBLY = "clean-forcibly"
    STOP_WRITING = "stop-writing"


@runtime_checkable
class Cleaner(Protocol):
    """Chooses what to delete; the store deletes, from the front and never leaving a gap."""

    def choose(
        self, segments: Sequence[SegmentInfo], state: DiskState, now_ms: int
    ) -> Sequence[Deletion]:
        """Decide which segments may go, oldest first; the active one is not among them."""


@runtime_checkable
class DiskWatcher(Protocol):
    """Watches the space on the disks of a store."""

    def observe(self, paths: Sequence[Path]) -> DiskState:
        """The state of the fullest of the disks that ``paths`` stand on."""


PROTOCOLS: dict[Kind, type[Any]] = {
    Kind.APPEND_CALLBACK: AppendCallback,
    Kind.WRITER: Writer,
    Kind.FLUSH_STRATEGY: FlushStrategy,
    Kind.REPLICATOR: Replicator,
    Kind.DISPATCHER: Dispatcher,
    Kind.FOLLOWER: Follower,
    Kind.CLEANER: Cleaner,
    Kind.DISK_WATCHER: DiskWatcher,
}
"""What the object of each kind must do."""
