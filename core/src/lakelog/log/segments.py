"""The log as files of one size: find, view, roll, truncate, delete (RocketMQ's MappedFileQueue).

Segments follow one another without a gap; deletion goes from the front, truncation from the back.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final

from lakelog.errors import LakelogError, OffsetOutOfRange
from lakelog.files.pages.positions import Positions
from lakelog.files.preallocation import Preallocator, SegmentMaker
from lakelog.files.segment_files import segment_files
from lakelog.interfaces import Sealable, Writer
from lakelog.log.open_segment import Opened, SealedSegment, Unsynced, Viewable, deleted

MOST_MAPS: Final = 64
"""How many sealed segments stay mapped for reading; each map holds a descriptor."""


def _ignore(_start_offset: int) -> None:
    """Nobody listens."""


class Segments:
    """The segments of one log, the last of them open for writing.

    :ivar size_bytes: length of each
    :ivar staged: whether bytes reach the page cache only by ``commit``
    :ivar first_offset: where the first one starts
    :ivar active_offset: where the one that is being written starts
    :ivar reserved_offset: an append that ends beyond it calls :meth:`reserve` first
    :ivar window: what of it compiled code may write to: see ``Window``
    :ivar open_segments: those that are mapped, or written, by where they start
    :ivar on_roll: told where each further segment starts
    """

    def __init__(
        self,
        maker: SegmentMaker,
        preallocator: Preallocator,
        writer: Writer,
        first_offset: int,
        active_offset: int,
        position: int,
        positions: Positions | None = None,
        *,
        is_there: bool = False,
    ) -> None:
        """Open the last segment.

        :param position: bytes of records in it
        :param positions: how far all processes have come that append
        :param is_there: whether the last one was made, also where ``position`` is 0
        """
        self.size_bytes = maker.size_bytes
        self.staged = writer.traits.staged
        self.first_offset = first_offset
        self.active_offset = active_offset
        self._maker = maker
        self._preallocator = preallocator
        self._writer = writer
        self._positions = positions or Positions()
        opened = self._adopted(active_offset, position) if position or is_there else self._first()
        self._use(opened)
        self.open_segments: dict[int, Viewable] = {active_offset: self.active}
        self._unsynced = [Unsynced(active_offset, self.active)]
        self._keeping = Lock()
        self._maps: dict[int, None] = {}  # the oldest first
        self._alive: dict[int, list[weakref.ref[mmap.mmap]]] = {}
        self.on_roll: Callable[[int], None] = _ignore

    def _adopted(self, start: int, position: int) -> Opened:
        blocks = self._maker.adopt(start, position)
        try:
            writer = self._writer.open(blocks.file, self.size_bytes, position)
        except BaseException:  # Ctrl-C too: nobody else could close it
            blocks.file.close()
            raise
        return Opened(start, writer, blocks)

    def _first(self) -> Opened:
        try:
            return self._new(self.active_offset)
        except BaseException:  # Ctrl-C too: what was made must go
            self._preallocator.close(lambda _: True)  # nobody else has the store open
            raise

    def _new(self, start: int, length: int = 0) -> Opened:
        """Open a segment, with blocks for ``length`` bytes."""
        blocks = self._preallocator.take(start)
        try:
            self._preallocator.reach(blocks, length)
            opened = Opened(start, self._writer.open(blocks.file, self.size_bytes, 0), blocks)
            if blocks.end:
                opened.extend(0)
        except BaseException:  # Ctrl-C too: the next try, or the close, finds it in stock
            self._preallocator.stock(start, blocks)
            raise
        return opened

    def _use(self, opened: Opened) -> None:
        """Write there from now on.

        No call stands between the stores: the handler of a signal sees none or all of them.
        """
        reserved = opened.start + opened.end // 2
        window = opened.window(self.size_bytes, reserved)
        self.active, self.active_offset, self._opened = opened.writer, opened.start, opened
        self.reserved_offset, self.window = reserved, window
        self._prepared: Opened | None = None

    def starts(self) -> Sequence[int]:
        """Where each segment starts, in order."""
        return range(self.first_offset, self._last() + 1, self.size_bytes)

    def _last(self) -> int:
        """Where the last one starts, of whatever process."""
        end = max(self._positions.appended - 1, 0)
        return max(self.active_offset, end - end % self.size_bytes)

    def view(self, offset: int, length: int) -> memoryview:
        """At most ``length`` bytes from ``offset``, not beyond the end of its segment; no copy."""
        start = offset - offset % self.size_bytes
        position = offset - start
        length = min(length, self.size_bytes - position)
        while True:
            segment = self._segment(start, offset)
            try:
                found = segment.view(position, length)
            except (OSError, ValueError):  # of a file that was closed
                if self.open_segments.get(start) is segment:
                    raise
                continue
            if self.open_segments.get(start) is segment:
                return found  # or it was closed, and may have read elsewhere

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
        return self._map(start, offset) if segment is None else segment

    def _map(self, start: int, offset: int) -> Viewable:
        try:
            made = SealedSegment(self._maker, start)
        except FileNotFoundError:
            if offset < self.first_offset:
                raise deleted(offset, self.first_offset) from None
            raise
        with self._keeping:
            held = [each for each in self._alive.get(start, ()) if each() is not None]
            self._alive[start] = [*held, made.alive]
            segment = self.open_segments.setdefault(start, made)
            self._keep(start)
        if start < self.first_offset:  # deleted meanwhile: its disk space must come free
            self._forget(start)
        return segment

    def _keep(self, start: int) -> None:
        """Keep its map as the latest one, and let go of the oldest: never of this one."""
        self._maps.pop(start, None)
        self._maps[start] = None
        if len(self._maps) > MOST_MAPS:
            oldest = next(iter(self._maps))
            del self._maps[oldest]
            self.open_segments.pop(oldest, None)  # views that are held keep the map

    def prepare_next(self) -> None:
        """See to it that the next segment is made before it is needed."""
        self._preallocator.request(self.active_offset + self.size_bytes)

    def reserve(self, offset: int, end_offset: int) -> bool:
        """Have blocks for the bytes from ``offset``, the end of the log, up to ``end_offset``.

        More are asked for ahead of need once half of what there is is used. Returns whether the
        writer was given more; raises ``OSError`` for want of room, and then nothing has changed.
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
        """Allocate nothing ahead of need while ``is_scarce`` says that so many bytes are."""
        self._preallocator.is_scarce = is_scarce

    def prepare_roll(self, length: int = 0) -> None:
        """Have the next segment open, with blocks for ``length`` bytes.

        Raises ``OSError`` where none can be made.
        """
        if self._prepared is None:
            self._preallocator.settle(self._opened.blocks)  # its file may be closed after the roll
            self._prepared = self._new(self.active_offset + self.size_bytes, length)

    def roll(self) -> None:
        """Go on in the segment that was prepared; again, where a roll was cut short."""
        opened = self._prepared
        if opened is None:
            raise ValueError("no segment was prepared")
        if isinstance(self.active, Sealable):
            self.active.seal()
        self._go_on(opened)

    def follow(self, position: int) -> None:
        """Go on where the log ends, at ``position``, in a segment that another process began.

        It is made where that one died before; raises ``OSError`` where that cannot be.
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

    def _go_on(self, opened: Opened) -> None:
        """Write in another segment; nothing happens twice."""
        start = opened.start
        with self._keeping:
            self._maps.pop(start, None)  # it was read before, as another process wrote it
            self.open_segments[start] = opened.writer
        if self._unsynced[-1].start != start:
            self._unsynced.append(Unsynced(start, opened.writer))
        former = self.active_offset
        self._use(opened)
        self.release()
        for each in range(former + self.size_bytes, start + 1, self.size_bytes):
            self.on_roll(each)

    def release(self) -> None:
        """Let go of segments that this process has written, and that are durable by now."""
        flushed = self._positions.flushed
        for each in list(self._unsynced):
            if each.start < self.active_offset and each.start + self.size_bytes <= flushed:
                self._retire(each)
        self._preallocator.forget_before(self.active_offset)

    def overwrite(self, offset: int, data: bytes | memoryview) -> None:
        """Write at ``offset`` past the writer, which has nothing in memory; within one segment."""
        start = offset - offset % self.size_bytes
        if start == self.active_offset:
            self._opened.blocks.file.write_at(offset - start, data)
            return
        file = self._maker.files.open(self._maker.path(start), write=True)
        try:
            file.write_at(offset - start, data)
        finally:
            file.close()

    def commit(self) -> int:
        """Hand staged bytes to the page cache, in log order; the end of what others see."""
        return [each.commit() for each in list(self._unsynced)][-1]

    def sync(self, start: int, end: int) -> None:
        """Make durable what was committed between two offsets; for one caller at a time.

        A segment that was sealed before is closed then: it is read through a map from now on.
        """
        unsynced = list(self._unsynced)  # at once: another thread may roll
        for each in (sealed := unsynced[:-1]):
            each.commit()  # its last bytes may have come after the last commit
        own = {each.start: each.writer for each in unsynced}
        starts = range(start - start % self.size_bytes, end, self.size_bytes)
        for at in starts:
            if at in own:
                own[at].sync()
            else:
                self._sync_file(at)
        if any(at not in own for at in starts):
            self._maker.files.sync_dir(self._maker.directory)  # who made it may have died before
        for each in sealed:
            if each.start + self.size_bytes <= end:
                self._retire(each)

    def _sync_file(self, start: int) -> None:
        """Of a segment that this process does not write."""
        file = self._maker.files.open(self._maker.path(start), write=True)
        try:
            file.sync()
        finally:
            file.close()

    def _retire(self, sealed: Unsynced) -> None:
        with suppress(ValueError):  # one that was deleted meanwhile
            self._unsynced.remove(sealed)
            self.open_segments.pop(sealed.start, None)
            sealed.writer.close()

    # --- deletion ---

    def readers(self, start: int) -> int:
        """How many maps of a sealed segment somebody still holds a view of.

        The map that is kept for the next reader is let go: nothing else tells who holds it.
        """
        if start not in self._alive:
            return 0
        with self._keeping:
            if isinstance(self.open_segments.get(start), SealedSegment):
                self.open_segments.pop(start, None)  # mapped again at the next view
                self._maps.pop(start, None)
        held = [each for each in self._alive.pop(start, ()) if each() is not None]
        if held:
            self._alive.setdefault(start, []).extend(held)
        return len(held)

    def is_durable(self, start: int) -> bool:
        """Whether a sync came behind the last byte of the segment that starts at ``start``."""
        self.release()
        return all(each.start != start for each in list(self._unsynced)) and (
            start + self.size_bytes <= self._positions.flushed
        )

    def retreat(self) -> int:
        """Give up the first segment, and leave its file for :meth:`remove`; the new first offset.

        Views that are held stay; whoever asks for a new one is refused. One that no sync has come
        behind, and the active one, are never given up: a sync may be at their files just now.
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
        """Delete the file of a segment that was given up, durably; one that is gone is no error.

        Raises ``OSError`` where it cannot be deleted, and
        :class:`~lakelog.files.preallocation.MakingFailed` where nobody knows.
        """
        self._maker.remove(start)

    def _forget(self, start: int) -> None:
        with self._keeping:
            # a writer of it was closed by the sync that retired it
            self.open_segments.pop(start, None)
            self._maps.pop(start, None)
            self._alive.pop(start, None)

    def close(self, *, keep: bool = False) -> None:
        """Let go of all files, and delete segments that were never used; once is enough.

        :param keep: delete none: other processes may use them
        """
        self._let_go_of_prepared()
        self.window = None
        with suppress(LakelogError):  # the store has failed, and says so itself
            self._preallocator.settle(self._opened.blocks)
        while self.open_segments:
            _, segment = self.open_segments.popitem()
            with suppress(OSError):
                segment.close()
        end = self._positions.appended
        self._preallocator.close(lambda start: not keep and start > end)

    def remove_unused(self) -> None:
        """Delete segments behind the end of the log, whoever made them; for a process alone."""
        maker = self._maker
        for each in reversed(segment_files(maker.directory, maker.files.list(maker.directory))):
            if each.start_offset > self._positions.appended:
                maker.remove(each.start_offset)
