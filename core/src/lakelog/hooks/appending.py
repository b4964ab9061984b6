"""The strategies of an append: the callback encodes messages as records, the writer writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from lakelog.results import AppendStatus

if TYPE_CHECKING:
    from lakelog.files.filesystem import File
    from lakelog.format.encoder import EncodedBatch
    from lakelog.format.queue_offsets import QueueOffsets
    from lakelog.message import Message, StoredMessage


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
    :ivar zero_copy_reads: whether ``view`` returns memory of the file itself, without a copy
    :ivar commit: when the bytes of a staged writer are committed; unused by other writers
    """

    alignment_bytes: int = 1
    staged: bool = False
    zero_copy_reads: bool = True
    commit: CommitRules = CommitRules()


@runtime_checkable
class SegmentWriter(Protocol):
    """One open segment file, from its first byte to its close."""

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write ``data`` at ``position`` bytes from the start; readable by ``view`` at once.

        Writes are in order and without gaps, one at a time, while other threads commit and sync.
        The blocks of the file are allocated before. Raises ``OSError``, which fails the store.
        """

    def view(self, position: int, length: int) -> memoryview:
        """A view of bytes of the segment; it stays valid after the file is deleted or closed."""

    def commit(self) -> int:
        """Write staged bytes to the page cache; return the end visible to other processes.

        The result is a position in the segment, in bytes. Raises ``OSError``.
        """

    def sync(self) -> None:
        """Make everything durable that was committed before this call; raises ``OSError``."""

    def close(self) -> None:
        """Close the file; existing views stay valid."""


@runtime_checkable
class InMemory(Protocol):
    """A segment writer whose whole segment is in memory, for compiled code that reads it.

    :ivar memory: all of its bytes, read-only; includes written bytes at once
    """

    memory: memoryview


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
