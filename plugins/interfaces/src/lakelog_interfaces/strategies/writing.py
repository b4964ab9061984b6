"""The writer: bytes of records to segment files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

if TYPE_CHECKING:
    from lakelog_interfaces.files import File


@attrs.frozen
class CommitRules:
    """When the bytes of a staged writer go to the page cache, if nobody asks for it before.

    :ivar interval_ms: how often is looked
    :ivar least_pages: a commit needs as many pages of 4 KiB that were touched since the last one
    :ivar thorough_interval_ms: as long after the last commit, anything is enough
    """

    interval_ms: int = 200
    least_pages: int = 4
    thorough_interval_ms: int = 200


@attrs.frozen
class WriterTraits:
    """What a store must know of a writer.

    :ivar alignment_bytes: positions and lengths that reach the device are multiples of this
    :ivar staged: written bytes reach the page cache only by ``commit``
    :ivar zero_copy_reads: ``view`` gives memory of the file itself, and copies nothing
    :ivar commit: when a staged writer's bytes are committed; of no use to others
    """

    alignment_bytes: int = 1
    staged: bool = False
    zero_copy_reads: bool = True
    commit: CommitRules = CommitRules()


@runtime_checkable
class SegmentWriter(Protocol):
    """One open segment file, from its first byte to its close."""

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Put ``data`` at ``position`` bytes from the start; readable by ``view`` at once.

        Writes come in order and without gaps, one at a time, while other threads commit and sync.
        The file has blocks for each, so that there is room for it.
        """

    def view(self, position: int, length: int) -> memoryview:
        """Bytes of the segment; the view stays right after the file was deleted or closed."""

    def commit(self) -> int:
        """Hand staged bytes to the page cache; the position up to which others see them."""

    def sync(self) -> None:
        """Make everything durable that was committed before this call began."""

    def close(self) -> None:
        """Let go of the file; views that were given out stay right."""


@runtime_checkable
class InMemory(Protocol):
    """A segment writer whose whole segment is in memory, for compiled code that reads it.

    :ivar memory: all of its bytes, read-only; what is written is there at once
    """

    memory: memoryview


@runtime_checkable
class Sealable(Protocol):
    """A segment writer that wants to hear that its segment is full."""

    def seal(self) -> None:
        """No write follows; what is committed need not be kept elsewhere any more."""


@runtime_checkable
class Extendable(Protocol):
    """A segment writer that maps the file to write: it may map only what has blocks."""

    def extend(self, position: int, end: int) -> None:
        """The file has blocks from ``position`` to ``end``, and the next write is at ``position``.

        Comes before the first write, and then between two writes whenever a write needs more; the
        page in which ``position`` is has blocks, too. Raises ``OSError``, and is then called again.
        """


@runtime_checkable
class Mapped(Protocol):
    """A segment writer past which compiled code may write what follows in the log.

    Its ``commit`` and ``sync`` must not need to know of such bytes: they are in the page cache.
    """

    def writable_map(self) -> tuple[memoryview, int, int, int]:
        """A map of what has blocks, the position of its first byte, a descriptor, and a length.

        Asked for behind each ``extend``. Whoever has the map writes where the log ends, and nowhere
        else. Records of that length in bytes, and longer ones, go to the descriptor by ``pwrite``,
        and so may all where each is synced.
        """


@runtime_checkable
class Writer(Protocol):
    """Opens segment files for appending."""

    traits: WriterTraits

    def open(self, file: File, size_bytes: int, position: int) -> SegmentWriter:
        """Take over ``file``, which has its full length, with ``position`` bytes of records in it.

        Blocks are allocated as the log grows: see :class:`Extendable`. To map all of it for reading
        is right, as the rest reads as zeros.
        """
