"""The log as files of equal size: find, view, roll, delete (RocketMQ's MappedFileQueue).

Segments are contiguous, and deletion removes the first ones. In a process, the last one is open for
writing, and others are opened when they are read. All are read by ``pread``, into copies: a load
from a map would kill the process if another program has cut the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import attrs

from lakelog.errors import LakelogError, OffsetOutOfRange
from lakelog.files.filesystem import File, OpenedFile, RealFileSystem, sync_file
from lakelog.files.preallocation import Blocks, Preallocator, SegmentMaker
from lakelog.files.segment_files import segment_files
from lakelog.hooks import Extendable, Mapped, Sealable, SegmentWriter, Writer
from lakelog.processes.positions import Positions
from lakelog.runtime.locks import Mutex

Window: TypeAlias = tuple[int, int, int, int, memoryview, int, int, int]
"""The memory that compiled code may write to: number; offsets of the segment, its end, and its
reserved end; a writable map; offset of the map's first byte; file descriptor; length in bytes from
which records are written through the descriptor. Numbers are unique in a process.
"""
_NUMBERS: Final = count(1)


class Viewable(Protocol):
    """A segment that can be read."""

    def view(self, position: int, length: int) -> memoryview:
        """Some of its bytes, fewer at its end."""

    def close(self) -> None:
        """Close it."""


class SealedSegment:
    """A segment that is no longer written, opened at the first read."""

    def __init__(self, maker: SegmentMaker, start_offset: int) -> None:
        self._file = OpenedFile(maker.files.open(maker.path(start_offset)))
        self.close = self._file.close

    def view(self, position: int, length: int) -> memoryview:
        """A copy of some bytes."""
        return memoryview(self._file.read(position, length))


@attrs.define(eq=False, repr=False)
class OpenSegment:
    """A segment open for writing.

    :ivar start: offset of its first byte
    :ivar end: position up to which its writer may write: the end of the allocated blocks
    """

    start: int
    writer: SegmentWriter
    blocks: Blocks
    end: int = 0

    def window(self, size_bytes: int, reserved_offset: int) -> Window | None:
        """The writable window of a segment of ``size_bytes``, up to ``reserved_offset``."""
        if not (self.end and isinstance(self.writer, Mapped)):
            return None
        memory, position, descriptor, most_bytes = self.writer.writable_map()
        start, number = self.start, next(_NUMBERS)
        place = start, start + size_bytes, reserved_offset
        return number, *place, memory, start + position, descriptor, most_bytes

    def commit(self) -> int:
        """Commit its bytes; return the offset of their end."""
        return self.start + self.writer.commit()

    def extend(self, position: int) -> None:
        """Give the writer the allocated blocks; its next write is at ``position``."""
        if isinstance(self.writer, Extendable):
            self.writer.extend(position, self.blocks.end)
        self.end = self.blocks.end


def deleted(offset: int, minimum: int) -> OffsetOutOfRange:
    """The error for a request of deleted bytes."""
    return OffsetOutOfRange(
        f"offset {offset} was deleted by retention; the log now begins at {minimum}: continue "
        "there; the records in between are lost",
        offset=offset,
    )


MOST_OPEN: Final = 64
"""Number of sealed segments kept open for reading."""


class Segments:
    """The segments of one log; the last one is open for writing.

    :ivar size_bytes: length of each segment
    :ivar staged: whether bytes reach the page cache by ``commit`` only
    :ivar first_offset: start of the first segment
    :ivar active_offset: start of the segment being written
    :ivar reserved_offset: an append that ends beyond it must call :meth:`reserve` first
    :ivar window: the part that compiled code may write to: see ``Window``
    :ivar open_segments: readable or writable segments, by start offset
    :ivar maps: maps of segments, by start offset, that compiled code has made to read them
    :ivar on_roll: called with the start of each further segment
    """

    def __init__(
        self,
        maker: SegmentMaker,
        preallocator: Preallocator,
        writer: Writer,
        first_offset: int,
        active_offset: int,
        position: int,
        positions: Positions,
        *,
        is_there: bool = False,
    ) -> None:
        """Open the last segment.

        :param position: bytes of records in it
        :param positions: the positions shared by all appending processes
        :param is_there: whether the last segment exists, even if ``position`` is 0
        """
        self.size_bytes = maker.size_bytes
        self.staged = writer.traits.staged
        self.first_offset = first_offset
        self.active_offset = active_offset
        self._maker = maker
        self._preallocator = preallocator
        self._writer = writer
        self._positions = positions
        opened = self._adopted(active_offset, position) if position or is_there else self._first()
        self._use(opened)
        self.open_segments: dict[int, Viewable] = {active_offset: self.active}
        self._unsynced = [opened]
        self._keeping = Mutex()
        self.maps: dict[int, object] = {}
        self._sealed: dict[int, None] = {}  # those opened for reading, the oldest first
        self.on_roll: Callable[[int], None] = lambda _start_offset: None

    def _adopted(self, start: int, position: int) -> OpenSegment:
        blocks = self._maker.adopt(start, position)
        try:
            writer = self._writer.open(blocks.file, self.size_bytes, position)
        except BaseException:  # Ctrl-C too: no caller has the file yet to close it
            blocks.file.close()
            raise
        return OpenSegment(start, writer, blocks)

    def _first(self) -> OpenSegment:
        try:
            return self._new(self.active_offset)
        except BaseException:  # Ctrl-C too: remove the files created so far
            self._preallocator.close(lambda _: True)  # no other process has the store open
            raise

    def _new(self, start: int, length: int = 0) -> OpenSegment:
        """Open a segment with blocks for ``length`` bytes."""
        blocks = self._preallocator.take(start)
        try:
            self._preallocator.reach(blocks, length)
            opened = OpenSegment(start, self._writer.open(blocks.file, self.size_bytes, 0), blocks)
            if blocks.end:
                opened.extend(0)
        except BaseException:  # Ctrl-C too: keep it for the next attempt or the close
            self._preallocator.add_ready(start, blocks)
            raise
        return opened

    def _use(self, opened: OpenSegment) -> None:
        """Make it the active segment.

        There is no call between the stores, so a signal handler runs before or after all of them.
        """
        reserved = opened.start + opened.end // 2
        window = opened.window(self.size_bytes, reserved)
        self.active, self.active_offset, self._opened = opened.writer, opened.start, opened
        self.reserved_offset, self.window = reserved, window
        self._prepared: OpenSegment | None = None

    def folder(self) -> Path | None:
        """The folder of the files, if they are the operating system's."""
        return self._maker.directory if type(self._maker.files) is RealFileSystem else None

    def starts(self) -> Sequence[int]:
        """The start offset of each segment, in order."""
        return range(self.first_offset, self._last() + 1, self.size_bytes)

    def _last(self) -> int:
        """Start of the last segment, in any process."""
        end = max(self._positions.appended - 1, 0)
        return max(self.active_offset, end - end % self.size_bytes)

    def view(self, offset: int, length: int) -> memoryview:
        """A copy of at most ``length`` bytes at ``offset``, within one segment.

        It is shorter if the file was cut. Raises :class:`~lakelog.errors.OffsetOutOfRange`, and
        ``OSError`` if the file cannot be opened or read.
        """
        start = offset - offset % self.size_bytes
        position = offset - start
        length = min(length, self.size_bytes - position)
        # Another thread may close or delete the segment at any time, without a lock here. A view is
        # valid if the segment is still open after it was taken; otherwise the lookup is repeated.
        while True:
            segment = self._segment(start, offset)
            try:
                found = segment.view(position, length)
            except (OSError, ValueError):  # the file was closed meanwhile
                if self.open_segments.get(start) is segment:
                    raise
                continue
            if self.open_segments.get(start) is segment:
                return found  # else its descriptor may have been closed and reused

    def _segment(self, start: int, offset: int) -> Viewable:
        if offset < self.first_offset:
            raise deleted(offset, self.first_offset)
        if offset >= self.active_offset + self.size_bytes:
            end = self._last() + self.size_bytes
            if offset >= end:
                raise OffsetOutOfRange(
                    f"offset {offset} is in no segment; there are {self.first_offset} to {end}",
                    offset=offset,
                )
        segment = self.open_segments.get(start)
        return self._open(start, offset) if segment is None else segment

    def _open(self, start: int, offset: int) -> Viewable:
        try:
            made = SealedSegment(self._maker, start)
        except FileNotFoundError:
            if offset < self.first_offset:
                raise deleted(offset, self.first_offset) from None
            raise
        with self._keeping:
            segment = self.open_segments.setdefault(start, made)
            self._keep(start)
        if start < self.first_offset:  # deleted meanwhile: free its disk space
            self._forget(start)
        return segment

    def _keep(self, start: int) -> None:
        """Mark the file of ``start`` as the latest, and drop the oldest if there are too many."""
        self._sealed.pop(start, None)
        self._sealed[start] = None
        if len(self._sealed) > MOST_OPEN:
            oldest = next(iter(self._sealed))
            self._sealed.pop(oldest, None)  # unless a handler of a signal has
            self.open_segments.pop(oldest, None)  # closed with the last read in progress

    def open_file(self, start: int) -> File:
        """Open the file of the segment at ``start``; the caller closes it.

        Raises ``OSError``, and :class:`~lakelog.errors.OffsetOutOfRange` for a deleted one.
        """
        if start >= self._positions.minimum:
            with suppress(FileNotFoundError):
                return self._maker.files.open(self._maker.path(start))
        raise deleted(start, self._positions.minimum)

    def prepare_next(self) -> None:
        """Begin to create the next segment ahead of need."""
        self._preallocator.request(self.active_offset + self.size_bytes)

    def reserve(self, offset: int, end_offset: int) -> bool:
        """Allocate blocks from ``offset``, the end of the log, up to ``end_offset``.

        The next step is requested once half of the present blocks are used. Returns whether the
        writer got more blocks. Raises ``OSError`` for lack of space, and then nothing has changed.
        """
        opened, start = self._opened, self.active_offset
        is_more = end_offset - start > opened.end
        if is_more:
            self._preallocator.reach(opened.blocks, end_offset - start)
            opened.extend(offset - start)
            self.reserved_offset = (offset + start + opened.end) // 2
        if end_offset > self.reserved_offset:
            self._preallocator.request_step(opened.blocks)
            self.reserved_offset = start + opened.end
        self.window = opened.window(self.size_bytes, self.reserved_offset)
        return is_more

    def hold_back(self, is_scarce: Callable[[int], bool]) -> None:
        """Allocate nothing ahead of need while ``is_scarce(bytes)`` is true."""
        self._preallocator.is_scarce = is_scarce

    def prepare_roll(self, length: int = 0) -> None:
        """Open the next segment, with blocks for ``length`` bytes.

        Raises ``OSError`` if it cannot be made.
        """
        if self._prepared is None:
            self._preallocator.settle(self._opened.blocks)  # the roll may close its file
            self._prepared = self._new(self.active_offset + self.size_bytes, length)

    def roll(self) -> None:
        """Continue in the prepared segment; safe to repeat after an interrupted roll.

        Raises ``ValueError`` without a prepared segment.
        """
        opened = self._prepared
        if opened is None:
            raise ValueError("no segment was prepared")
        if isinstance(self.active, Sealable):
            self.active.seal()
        self._go_on(opened)

    def follow(self, position: int) -> None:
        """Continue at ``position``, the end of the log, in a segment begun by another process.

        If that process died before it created the segment, this process creates it; raises
        ``OSError`` if that fails.
        """
        start = position - position % self.size_bytes
        self._let_go_of_prepared(but=start)
        if self._prepared is None:
            self._preallocator.settle(self._opened.blocks)
            is_there = position > start or self._maker.is_there(start)
            opened = self._adopted(start, position - start) if is_there else self._new(start)
            self._prepared = opened
        self._go_on(self._prepared)

    def _let_go_of_prepared(self, but: int = -1) -> None:
        prepared = self._prepared
        if prepared is not None and prepared.start != but:
            self._prepared = None
            with suppress(OSError):
                prepared.writer.close()

    def _go_on(self, opened: OpenSegment) -> None:
        """Make another segment the active one; idempotent."""
        start = opened.start
        with self._keeping:
            self._sealed.pop(start, None)  # it may be open to read records of another process
            self.open_segments[start] = opened.writer
        if self._unsynced[-1].start != start:
            self._unsynced.append(opened)
        former = self.active_offset
        self._use(opened)
        self.release()
        for each in range(former + self.size_bytes, start + 1, self.size_bytes):
            self.on_roll(each)

    def release(self) -> None:
        """Close durable segments that this process has written."""
        flushed = self._positions.flushed
        for each in list(self._unsynced):
            if each.start < self.active_offset and each.start + self.size_bytes <= flushed:
                self._retire(each)
        self._preallocator.close_before(self.active_offset)

    def overwrite(self, offset: int, data: bytes | memoryview) -> None:
        """Write at ``offset``, bypassing a writer without staged bytes; within one segment."""
        start = offset - offset % self.size_bytes
        if start == self.active_offset:
            self._opened.blocks.file.write_at(offset - start, data)
            return
        with closing(self._maker.files.open(self._maker.path(start), write=True)) as file:
            file.write_at(offset - start, data)

    def commit(self) -> int:
        """Write staged bytes to the page cache, in log order; return the offset of their end."""
        return [each.commit() for each in list(self._unsynced)][-1]

    def sync(self, start: int, end: int) -> None:
        """Make the committed bytes between two offsets durable; one caller at a time.

        Segments sealed before are closed afterwards.
        """
        unsynced = list(self._unsynced)  # a copy: another thread may roll
        for each in (sealed := unsynced[:-1]):
            each.commit()  # its last bytes may be newer than the last commit
        own = {each.start: each.writer for each in unsynced}
        starts = range(start - start % self.size_bytes, end, self.size_bytes)
        for at in starts:
            if at in own:
                own[at].sync()
            else:
                sync_file(self._maker.files, self._maker.path(at))
        if any(at not in own for at in starts):
            self._maker.files.sync_dir(self._maker.directory)  # its creator may have died before
        for each in sealed:
            if each.start + self.size_bytes <= end:
                self._retire(each)

    def _retire(self, sealed: OpenSegment) -> None:
        with suppress(ValueError):  # deleted meanwhile
            self._unsynced.remove(sealed)
            self.open_segments.pop(sealed.start, None)
            sealed.writer.close()

    # --- deletion ---

    def is_durable(self, start: int) -> bool:
        """Whether the whole segment at ``start`` has been synced."""
        self.release()
        return all(each.start != start for each in list(self._unsynced)) and (
            start + self.size_bytes <= self._positions.flushed
        )

    def exclude_first(self) -> int:
        """Exclude the first segment from the log; return the new first offset.

        The file stays until :meth:`remove`, and is not read any more. Raises
        ``ValueError`` for a segment that is active or not durable, since a sync may use its file.
        """
        start = self.first_offset
        if start == self.active_offset:
            raise ValueError("the active segment cannot be deleted")
        if not self.is_durable(start):
            raise ValueError(f"the segment at {start} is not durable yet; sync the log before")
        self.first_offset = start + self.size_bytes
        self._forget(start)
        return self.first_offset

    def remove(self, start: int) -> None:
        """Durably delete the file of an excluded segment (:meth:`exclude_first`), if it exists.

        Raises ``OSError`` if it cannot be deleted, and
        :class:`~lakelog.files.preallocation.MakingFailed` if the outcome is unknown.
        """
        self._maker.remove(start)

    def _forget(self, start: int) -> None:
        with self._keeping:
            # Its writer is closed already, since the segment is durable.
            self.open_segments.pop(start, None)
            self._sealed.pop(start, None)
            self.maps.pop(start, None)

    def close(self, *, keep: bool = False) -> None:
        """Close all files, and delete unused segments; a second call does nothing.

        :param keep: whether to delete none, since other processes may use them
        """
        self._let_go_of_prepared()
        self.window = None
        self.maps.clear()
        with suppress(LakelogError):  # the store has failed already, and reports it
            self._preallocator.settle(self._opened.blocks)
        while self.open_segments:
            _, segment = self.open_segments.popitem()
            with suppress(OSError):
                segment.close()
        end = self._positions.appended
        self._preallocator.close(lambda start: not keep and start > end)

    def remove_unused(self) -> None:
        """Delete segments behind the end of the log, by whichever process they were created.

        No other process may have the store open.
        """
        maker = self._maker
        for each in reversed(segment_files(maker.directory, maker.files.list(maker.directory))):
            if each.start_offset > self._positions.appended:
                maker.remove(each.start_offset)
