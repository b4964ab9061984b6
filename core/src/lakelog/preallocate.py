"""New segments, made whole before anybody sees them, and ahead of need.

A segment is allocated in a temporary folder of the same file system, synced, renamed into place,
and its directory synced: no short or stray name ever stands among the segments. Where there is no
room for one, or it cannot be opened, nothing has happened, and it is tried again when it is
needed. After any other failure nobody knows what is durable: the store fails.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs

from lakelog.files import File, FileSystem
from lakelog.layout import segment_name

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The disk, a quota, or the process's limit of file sizes (``RLIMIT_FSIZE``) is at its end."""

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


@attrs.frozen
class SegmentMaker:
    """Makes full-size segment files.

    :ivar directory: where segments stand
    :ivar temporary: a folder of the same file system
    """

    files: FileSystem
    directory: Path
    temporary: Path
    size_bytes: int

    def path(self, start_offset: int) -> Path:
        """Where the segment that starts at ``start_offset`` stands."""
        return self.directory / segment_name(start_offset)

    def make(self, start_offset: int) -> File:
        """Make a segment.

        Raises ``OSError``, and then leaves nothing behind; :class:`MakingFailed` where a call
        failed otherwise than for want of room.
        """
        target = self.path(start_offset)
        temporary = self.temporary / target.name
        file = self.files.open(temporary, write=True, create=True)
        try:
            self._make(file, temporary, target)
        except BaseException:  # Ctrl-C too: a partial file would fill the disk
            file.close()
            with suppress(OSError):
                self.files.unlink(temporary)
            raise
        return file

    def _make(self, file: File, temporary: Path, target: Path) -> None:
        with _grave(but=NO_ROOM):
            file.allocate(self.size_bytes)
        with _grave():
            file.sync()
        with _grave(but=NO_ROOM):
            self.files.rename(temporary, target)
        with _grave():
            self.files.sync_dir(self.directory)

    def adopt(self, start_offset: int) -> File:
        """Open a segment that is there for writing, all of it allocated."""
        file = self.files.open(self.path(start_offset), write=True)
        try:
            file.allocate(self.size_bytes)
        except BaseException:  # Ctrl-C too: nobody else could close it
            file.close()
            raise
        return file

    def remove(self, start_offset: int) -> None:
        """Delete a segment durably; one that is gone already is no error.

        Raises ``OSError`` if it is still there, :class:`MakingFailed` if nobody knows.
        """
        with suppress(FileNotFoundError):
            self.files.unlink(self.path(start_offset))
        with _grave():
            self.files.sync_dir(self.directory)


class Preallocator:
    """Has the next segment ready; one thread of its own, which only makes files.

    :param fail: makes the store fail, from whatever thread; without it ``OSError`` is raised
    :ivar is_scarce: whether disk space is too scarce to make files ahead of need
    """

    def __init__(self, maker: SegmentMaker, ahead: bool, fail: Fail | None = None) -> None:
        self._maker = maker
        self._ahead = ahead
        self._fail = fail or _as_it_is
        self._ready: dict[int, Future[File]] = {}
        self.is_scarce: Callable[[], bool] = _never
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lakelog-preallocate")

    def stock(self, start_offset: int, file: File) -> None:
        """Take over an empty segment that is there already."""
        done: Future[File] = Future()
        done.set_result(file)
        self._ready[start_offset] = done

    def request(self, start_offset: int) -> None:
        """Begin to make the segment at ``start_offset``, if segments are made ahead of need.

        Not while :attr:`is_scarce` says so: then it is made when it is needed, if at all.
        """
        if self._ahead and start_offset not in self._ready and not self.is_scarce():
            self._ready[start_offset] = self._pool.submit(self._make, start_offset)

    def take(self, start_offset: int) -> File:
        """The segment at ``start_offset``; raises ``OSError`` only if it cannot be made now.

        Want of room ahead of need is forgotten: the segment is tried again when it is needed.
        Raises what ``fail`` gives where the store cannot pass over the failure.
        """
        future = self._ready.pop(start_offset, None)
        if future is not None:
            with suppress(OSError):
                return future.result()
        return self._make(start_offset)

    def _make(self, start_offset: int) -> File:
        try:
            return self._maker.make(start_offset)
        except MakingFailed as error:
            raise self._fail(error.cause) from error.cause

    def close(self) -> None:
        """Stop, and delete segments that were made and never used."""
        self._pool.shutdown()
        for start_offset in sorted(self._ready, reverse=True):
            future = self._ready.pop(start_offset)
            if future.exception() is None:
                with suppress(OSError):
                    future.result().close()
                    self._maker.remove(start_offset)


def _as_it_is(cause: BaseException) -> Exception:
    """Opening: whoever opens hears of it."""
    return cause if isinstance(cause, Exception) else RuntimeError(str(cause))


def _never() -> bool:
    """Nobody watches the disks."""
    return False
