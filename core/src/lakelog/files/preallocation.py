"""New segments and the blocks of a segment, both ahead of need.

A segment is made in a temporary folder of the same file system, with its full length and blocks for
the first step, synced, renamed into place, and its directory synced: no short or stray name ever
stands among the segments. Further blocks are allocated in steps, before the log comes to them.
Where there is no room for either, or a segment cannot be opened, nothing has happened, and it is
tried again when it is needed. After any other failure nobody knows what is durable: the store
fails.
"""

from __future__ import annotations

import errno
import mmap
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import ThreadNotStarted
from lakelog.files.filesystem import File, FileSystem
from lakelog.format.layout import segment_name
from lakelog.runtime.threads import submitted

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The disk, a quota, or the process's limit of file sizes (``RLIMIT_FSIZE``) is at its end."""

FIRST_STEP_BYTES: Final = 1 << 20
MOST_STEPS: Final = 16
"""The longest step, in first ones."""

Fail = Callable[[BaseException], Exception]
"""Makes the store fail; the error to raise."""


class MakingFailed(OSError):
    """A call that makes or removes a segment failed in a way that the store cannot pass over."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.errno, cause.strerror, cause.filename)
        self.cause = cause


@contextmanager
def _grave(*, but: frozenset[int] = frozenset()) -> Iterator[None]:
    """Raise :class:`MakingFailed` for failures, ``but`` for some."""
    try:
        yield
    except OSError as error:
        if error.errno in but:
            raise
        raise MakingFailed(error) from error


@attrs.define(eq=False)
class Blocks:
    """How far a segment file has blocks; for the thread that holds the append lock.

    :ivar end: position behind the last one that is known to be there
    :ivar coming: the step that another thread is allocating; gives where that ends
    """

    file: File
    end: int
    coming: Future[int] | None = None


@attrs.frozen
class SegmentMaker:
    """Makes segment files of full length, and allocates their blocks.

    :ivar directory: where segments stand
    :ivar temporary: a folder of the same file system
    :ivar step_bytes: length of the first step; later ones are up to :data:`MOST_STEPS` times that
    :ivar unit_bytes: blocks are allocated up to a multiple of this at least
    :ivar turn: held while a segment is made: another process may want the same one
    """

    files: FileSystem
    directory: Path
    temporary: Path
    size_bytes: int
    step_bytes: int = FIRST_STEP_BYTES
    unit_bytes: int = mmap.ALLOCATIONGRANULARITY
    turn: AbstractContextManager[None] = attrs.field(factory=nullcontext)

    def path(self, start_offset: int) -> Path:
        """Where the segment that starts at ``start_offset`` stands."""
        return self.directory / segment_name(start_offset)

    def remove_unfinished(self) -> None:
        """Remove what an earlier run left in the temporary folder."""
        for name, _ in self.files.list(self.temporary):
            self.files.unlink(self.temporary / name)

    def make(self, start_offset: int, step_bytes: int | None = None) -> Blocks:
        """Make a segment, with blocks for one step; or open one that another process has made.

        Raises ``OSError``, and then leaves nothing behind; :class:`MakingFailed` where a call
        failed otherwise than for want of room.
        """
        with self.turn:
            if self.is_there(start_offset):
                return self.adopt(start_offset)
            return self._made(start_offset, step_bytes or self.step_bytes)

    def _made(self, start_offset: int, step_bytes: int) -> Blocks:
        target = self.path(start_offset)
        temporary = self.temporary / target.name
        file = self.files.open(temporary, write=True, create=True)
        try:
            blocks = self._make(file, temporary, target, step_bytes)
        except BaseException:  # Ctrl-C too: a partial file would fill the disk
            file.close()
            with suppress(OSError):
                self.files.unlink(temporary)
            raise
        return blocks

    def _make(self, file: File, temporary: Path, target: Path, step_bytes: int) -> Blocks:
        blocks = Blocks(file, 0)
        with _grave(but=NO_ROOM):
            file.truncate(self.size_bytes)
        blocks.end = self.allocate(blocks, 1, step_bytes)
        with _grave():
            file.sync()
        with _grave(but=NO_ROOM):
            self.files.rename(temporary, target)
        with _grave():
            self.files.sync_dir(self.directory)
        return blocks

    def is_there(self, start_offset: int) -> bool:
        """Whether the segment stands there."""
        return self.path(start_offset).exists()

    def adopt(self, start_offset: int, position: int = 0) -> Blocks:
        """Open a segment that is there, to go on from ``position``; allocates nothing yet."""
        file = self.files.open(self.path(start_offset), write=True)
        return Blocks(file, position - position % mmap.PAGESIZE)

    def allocate(self, blocks: Blocks, least_end: int, step_bytes: int) -> int:
        """Allocate up to ``least_end`` and to the end of a step; where that is.

        Raises as :meth:`make`.
        """
        end = min(-(-least_end // step_bytes) * step_bytes, self.size_bytes)
        with _grave(but=NO_ROOM):
            blocks.file.allocate(end - blocks.end, blocks.end)
        return end

    def remove(self, start_offset: int) -> None:
        """Delete a segment durably; one that is gone already is no error.

        Raises ``OSError`` if it is still there, :class:`MakingFailed` if nobody knows.
        """
        with suppress(FileNotFoundError):
            self.files.unlink(self.path(start_offset))
        with _grave():
            self.files.sync_dir(self.directory)


class Preallocator:
    """Has the next segment and the next blocks ready; one thread of its own, which only does that.

    :param fail: makes the store fail, from whatever thread; without it ``OSError`` is raised
    :ivar is_scarce: whether disk space is too scarce to allocate so many bytes ahead of need
    """

    def __init__(self, maker: SegmentMaker, ahead: bool, fail: Fail | None = None) -> None:
        self._maker = maker
        self._ahead = ahead
        self._fail = fail or _as_it_is
        self._ready: dict[int, Future[Blocks]] = {}
        self._step_bytes = maker.step_bytes
        self.is_scarce: Callable[[int], bool] = _never
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lakelog-preallocate")

    def stock(self, start_offset: int, blocks: Blocks) -> None:
        """Take over an empty segment that is there already."""
        done: Future[Blocks] = Future()
        done.set_result(blocks)
        self._ready[start_offset] = done

    def request(self, start_offset: int) -> None:
        """Begin to make the segment at ``start_offset``, if segments are made ahead of need.

        Not while :attr:`is_scarce` says so: then it is made when it is needed, if at all.
        """
        if start_offset not in self._ready and self._may_be_ahead():
            with suppress(ThreadNotStarted):  # it is made when it is needed
                self._ready[start_offset] = submitted(
                    self._pool.submit, "lakelog-preallocate", partial(self._make, start_offset)
                )

    def _may_be_ahead(self) -> bool:
        return self._ahead and not self.is_scarce(self._step_bytes)

    def take(self, start_offset: int) -> Blocks:
        """The segment at ``start_offset``; raises ``OSError`` only if it cannot be made now.

        Want of room ahead of need is forgotten: the segment is tried again when it is needed, and
        with blocks for a first step where there is no room for a longer one.
        Raises what ``fail`` gives where the store cannot pass over the failure.
        """
        future = self._ready.pop(start_offset, None)
        if future is not None:
            with suppress(OSError):
                return future.result()
        if self._maker.is_there(start_offset):  # another process has made it
            return self._maker.adopt(start_offset)
        try:
            return self._make(start_offset)
        except OSError as error:
            if error.errno not in NO_ROOM or self._step_bytes <= self._maker.step_bytes:
                raise
        return self._make(start_offset, self._maker.step_bytes)

    def forget_before(self, start_offset: int) -> None:
        """Close segments that were made ahead of need, and that other processes came to first."""
        for start in [each for each in list(self._ready) if each < start_offset]:
            future = self._ready.get(start)
            if future is not None and future.done():  # else it is closed by a later call
                self._ready.pop(start, None)
                if future.exception() is None:
                    future.result().file.close()

    def _make(self, start_offset: int, step_bytes: int | None = None) -> Blocks:
        with self._failing():
            return self._maker.make(start_offset, step_bytes or self._step_bytes)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except MakingFailed as error:
            raise self._fail(error.cause) from error.cause

    # --- blocks ---

    def request_step(self, blocks: Blocks) -> None:
        """Begin to allocate the next step, if that is done ahead of need; the next one is larger.

        As with segments, not while :attr:`is_scarce` says so.
        """
        if blocks.coming is None and blocks.end < self._maker.size_bytes and self._may_be_ahead():
            most = self._maker.step_bytes * MOST_STEPS
            self._step_bytes = min(self._step_bytes * 2, most)
            with suppress(ThreadNotStarted):  # they are allocated when they are needed
                blocks.coming = submitted(
                    self._pool.submit,
                    "lakelog-preallocate",
                    partial(self._allocate, blocks, blocks.end + 1),
                )

    def reach(self, blocks: Blocks, least_end: int) -> None:
        """See to it that there are blocks up to ``least_end``.

        Raises ``OSError`` for want of room, and then it can be tried again; what ``fail`` gives for
        other failures. Where there is no room for a step, what is needed is tried.
        """
        self.settle(blocks)
        if blocks.end >= least_end:
            return
        try:
            blocks.end = self._allocate(blocks, least_end)
        except OSError:
            blocks.end = self._allocate(blocks, least_end, self._maker.unit_bytes)

    def _allocate(self, blocks: Blocks, least_end: int, step_bytes: int | None = None) -> int:
        with self._failing():
            return self._maker.allocate(blocks, least_end, step_bytes or self._step_bytes)

    def settle(self, blocks: Blocks) -> None:
        """Wait for a step that is being allocated, and give up one that has not begun.

        Want of room ahead of need is forgotten.
        """
        coming = blocks.coming
        if coming is not None and not coming.cancel():
            with suppress(OSError):
                blocks.end = coming.result()
        blocks.coming = None

    def close(self, is_unused: Callable[[int], bool]) -> None:
        """Stop, and delete segments that were made and never used, of any process.

        :param is_unused: says whether the one that starts at an offset is
        """
        self._pool.shutdown()
        for start_offset in sorted(self._ready, reverse=True):
            future = self._ready.pop(start_offset)
            if future.exception() is None:
                with suppress(OSError):
                    future.result().file.close()
                    if is_unused(start_offset):
                        self._maker.remove(start_offset)


def _as_it_is(cause: BaseException) -> Exception:
    """Opening: whoever opens hears of it."""
    return cause if isinstance(cause, Exception) else RuntimeError(str(cause))


def _never(_bytes: int) -> bool:
    """Nobody watches the disks."""
    return False
