"""Creates segments and allocates their blocks, both ahead of need.

A segment is created in a temporary folder of the same file system, at full length, with blocks for
the first step. It is synced, renamed into place, and its directory synced. So no short or stray
file ever appears among the segments. Further blocks are allocated in steps before the log reaches
them.

If there is no space for a segment or for blocks, or a segment cannot be opened, nothing has
changed, and the attempt is repeated when needed. After any other failure the durable state of the
files is unknown, so the store fails.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import NotOpened, ThreadNotStarted
from lakelog.files.filesystem import NO_ROOM, File, FileSystem, RealFile
from lakelog.format.layout import segment_name
from lakelog.runtime.threads import LockFreeFuture, Workers, submitted

FIRST_STEP_BYTES: Final = 1 << 20
MOST_STEPS: Final = 16
"""The longest step, as a multiple of the first."""

Fail = Callable[[BaseException], Exception]
"""Fails the store; returns the error to raise."""


class MakingFailed(OSError):
    """Creating or removing a segment failed in a way that must fail the store."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.errno, cause.strerror, cause.filename)
        self.cause = cause


@contextmanager
def _as_making_failed(*, but: frozenset[int] = frozenset()) -> Iterator[None]:
    """Turn ``OSError`` into :class:`MakingFailed`, except for the error numbers ``but``."""
    try:
        yield
    except OSError as error:
        if error.errno in but or isinstance(error, NotOpened):
            raise
        raise MakingFailed(error) from error


@attrs.define(eq=False, repr=False)
class Blocks:
    """The allocated blocks of a segment file; accessed under the append lock.

    :ivar end: position behind the last block known to be allocated, in bytes
    :ivar coming: the step being allocated by another thread, if any; its result is its end
    """

    file: File
    end: int
    coming: LockFreeFuture[int] | None = None


@attrs.frozen(eq=False, repr=False)
class SegmentMaker:
    """Creates segment files of full length, and allocates their blocks.

    :ivar directory: the folder of the segments
    :ivar temporary: a folder on the same file system
    :ivar size_bytes: length of each segment
    :ivar step_bytes: length of the first step; later ones are up to :data:`MOST_STEPS` times that
    :ivar unit_bytes: blocks are allocated up to a multiple of this
    :ivar turn: calls a function that creates a segment, one at a time of all processes, since
        another may need the same one
    """

    files: FileSystem
    directory: Path
    temporary: Path
    size_bytes: int
    step_bytes: int = FIRST_STEP_BYTES
    unit_bytes: int = mmap.ALLOCATIONGRANULARITY
    turn: Callable[[Callable[[], Blocks]], Blocks] = attrs.field(default=lambda make: make())

    def path(self, start_offset: int) -> Path:
        """The path of the segment that starts at ``start_offset``."""
        return self.directory / segment_name(start_offset)

    def remove_unfinished(self) -> None:
        """Remove the remains of an earlier run from the temporary folder."""
        for name, _ in self.files.list(self.temporary):
            self.files.unlink(self.temporary / name)

    def make(self, start_offset: int, step_bytes: int | None = None) -> Blocks:
        """Create a segment with blocks for one step, or open one created by another process.

        Raises ``OSError`` for lack of space, or if the file cannot be opened, and then leaves no
        file; :class:`MakingFailed` for any other failure.
        """
        return self.turn(partial(self._made, start_offset, step_bytes or self.step_bytes))

    def _made(self, start_offset: int, step_bytes: int) -> Blocks:
        if self.is_there(start_offset):
            return self.adopt(start_offset)
        target = self.path(start_offset)
        temporary = self.temporary / target.name
        file = self.files.open(temporary, write=True, create=True)
        try:
            blocks = self._make(file, temporary, target, step_bytes)
        except BaseException as error:  # Ctrl-C too: a partial file would fill the disk
            file.close()
            with suppress(OSError):
                self.files.unlink(temporary)
            if isinstance(error, OSError):
                error.filename = str(target)  # which users know
            raise
        return blocks

    def _make(self, file: File, temporary: Path, target: Path, step_bytes: int) -> Blocks:
        blocks = Blocks(file, 0)
        with _as_making_failed(but=NO_ROOM):
            file.truncate(self.size_bytes)
        blocks.end = self.allocate(blocks, 1, step_bytes)
        with _as_making_failed():
            file.sync()
        with _as_making_failed(but=NO_ROOM):
            self.files.rename(temporary, target)
        if isinstance(file, RealFile):  # for the errors of later calls
            file.path = target
        with _as_making_failed():
            self.files.sync_dir(self.directory)
        return blocks

    def is_there(self, start_offset: int) -> bool:
        """Whether the segment exists."""
        return self.path(start_offset).exists()

    def adopt(self, start_offset: int, position: int = 0) -> Blocks:
        """Open an existing segment, to continue at ``position``; allocates no blocks.

        Its creator may have died, or lacked a descriptor, before it synced the name.
        """
        with _as_making_failed():
            self.files.sync_dir(self.directory)
        file = self.files.open(self.path(start_offset), write=True)
        return Blocks(file, position - position % mmap.PAGESIZE)

    def allocate(self, blocks: Blocks, least_end: int, step_bytes: int) -> int:
        """Allocate blocks up to ``least_end``, rounded up to a whole step; return their end.

        Raises as :meth:`make`.
        """
        end = min(-(-least_end // step_bytes) * step_bytes, self.size_bytes)
        with _as_making_failed(but=NO_ROOM):
            blocks.file.allocate(end - blocks.end, blocks.end)
        return end

    def remove(self, start_offset: int) -> None:
        """Delete a segment durably; a missing one is no error.

        Raises ``OSError`` if it still exists, and :class:`MakingFailed` if the deletion may not be
        durable.
        """
        with suppress(FileNotFoundError):
            self.files.unlink(self.path(start_offset))
        with _as_making_failed():
            self.files.sync_dir(self.directory)


class Preallocator:
    """Prepares the next segment and the next blocks in a thread of its own.

    :param fail: fails the store, from any thread
    :ivar is_scarce: returns whether disk space is too scarce to allocate a number of bytes ahead
        of need
    """

    def __init__(self, maker: SegmentMaker, ahead: bool, fail: Fail) -> None:
        self._maker = maker
        self._ahead = ahead
        self._fail = fail
        self._ready: dict[int, LockFreeFuture[Blocks]] = {}
        self._step_bytes = maker.step_bytes
        self.is_scarce: Callable[[int], bool] = lambda _bytes: False
        self._pool = Workers("lakelog-preallocate")

    def add_ready(self, start_offset: int, blocks: Blocks) -> None:
        """Keep an existing empty segment for a later :meth:`take`."""
        done = LockFreeFuture[Blocks]()
        done.set_result(blocks)
        self._ready[start_offset] = done

    def request(self, start_offset: int) -> None:
        """Begin to create the segment at ``start_offset``, if the settings allow that.

        Does nothing while :attr:`is_scarce` is true; the segment is then created when needed.
        """
        if start_offset not in self._ready and self._may_be_ahead():
            with suppress(ThreadNotStarted):  # it is created when needed
                self._ready[start_offset] = submitted(
                    self._pool.submit, "lakelog-preallocate", partial(self._make, start_offset)
                )

    def _may_be_ahead(self) -> bool:
        return self._ahead and not self.is_scarce(self._step_bytes)

    def take(self, start_offset: int) -> Blocks:
        """The segment at ``start_offset``; raises ``OSError`` if it cannot be created now.

        An earlier lack of space is ignored: creation is tried again, with blocks for a first step
        if a longer one does not fit. Raises the error of ``fail`` for failures that must fail the
        store.
        """
        future = self._ready.pop(start_offset, None)
        if future is not None:
            with suppress(OSError):
                return future.result()
        try:
            return self._make(start_offset)
        except OSError as error:
            if error.errno not in NO_ROOM or self._step_bytes <= self._maker.step_bytes:
                raise
        return self._make(start_offset, self._maker.step_bytes)

    def close_before(self, start_offset: int) -> None:
        """Close prepared segments before ``start_offset``, which other processes have used."""
        for start in [each for each in list(self._ready) if each < start_offset]:
            future = self._ready.get(start)
            if future is not None and future.done():  # otherwise a later call closes it
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
        """Begin to allocate the next step, if the settings allow that; steps grow.

        Does nothing while :attr:`is_scarce` is true.
        """
        if blocks.coming is None and blocks.end < self._maker.size_bytes and self._may_be_ahead():
            most = self._maker.step_bytes * MOST_STEPS
            self._step_bytes = min(self._step_bytes * 2, most)
            with suppress(ThreadNotStarted):  # they are allocated when needed
                blocks.coming = submitted(
                    self._pool.submit,
                    "lakelog-preallocate",
                    partial(self._allocate, blocks, blocks.end + 1),
                )

    def reach(self, blocks: Blocks, least_end: int) -> None:
        """Ensure that blocks are allocated up to ``least_end``.

        If there is no space for a whole step, only the needed blocks are allocated. Raises
        ``OSError`` for lack of space, and the call can then be repeated; raises the error of
        ``fail`` for other failures.
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
        """Wait for a step being allocated; cancel one that has not begun.

        A lack of space ahead of need is ignored.
        """
        coming = blocks.coming
        if coming is not None and not coming.cancel():
            with suppress(OSError):
                blocks.end = coming.result()
        blocks.coming = None

    def close(self, is_unused: Callable[[int], bool]) -> None:
        """Stop, and delete prepared segments that no process has used.

        :param is_unused: whether the segment that starts at an offset is unused
        """
        self._pool.shutdown()
        for start_offset in sorted(self._ready, reverse=True):
            future = self._ready.pop(start_offset)
            if future.exception() is None:
                with suppress(OSError):
                    future.result().file.close()
                    if is_unused(start_offset):
                        self._maker.remove(start_offset)
