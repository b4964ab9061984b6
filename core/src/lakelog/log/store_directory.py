"""Examines a directory before it is opened: whether it holds a store that can be owned.

Nothing here changes a byte, except for the mark in a directory where a store is being created.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs

from lakelog.errors import NotAStore, ReadFailed, StoreError
from lakelog.files.checkpoint import StoreCheckpoint, read_checkpoint
from lakelog.files.filesystem import FileSystem
from lakelog.files.segment_files import SegmentFile, bad_segments, segment_files
from lakelog.format import layout
from lakelog.hooks.kinds import StoreSettings
from lakelog.processes.ownership import is_owned


@attrs.frozen(eq=False, repr=False)
class StoreDirectory:
    """A store directory, which may be missing.

    :ivar path: the store directory
    :ivar commitlog: the directory of its segments
    """

    files: FileSystem
    path: Path
    commitlog: Path

    @classmethod
    def of(cls, files: FileSystem, path: Path, core: StoreSettings) -> StoreDirectory:
        """The directory ``path`` of a store with these settings."""
        return cls(files, path, core.commitlog(path))

    def is_new(self) -> bool:
        """Whether no store is there yet, and one can be created.

        Raises :class:`~lakelog.errors.NotAStore` if something else is there.
        """
        if self.commitlog.is_dir():
            return False
        if not self.path.exists():
            return True
        if not self.path.is_dir():
            raise NotAStore("this is a file; a store is a directory", path=self.path)
        found = sorted(each.name for each in self.path.iterdir())
        if self._foreign(found) and not self._mark.exists():
            if self.commitlog.is_dir():  # created meanwhile by another process
                return False
            raise NotAStore(
                f"the directory holds {', '.join(found[:3])} and no {self.commitlog.name}/; "
                "give an empty directory, or one that RocketMQ or lakelog wrote",
                path=self.path,
            )
        return True

    def is_new_or_being_made(self) -> bool | None:
        """As :meth:`is_new`; ``None`` if unknown because another owner is creating the store."""
        try:
            return self.is_new()
        except NotAStore:
            if is_owned(self.files, self.path):
                return None
            raise

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Mark a new directory before strategies are built, which may create files in it.

        Without the mark, the remains of a failed or interrupted open would look like a directory
        of another program. The owner removes the mark once the log's folder exists.

        Raises :class:`~lakelog.errors.NotAStore` if something else is there.
        """
        if not self.is_new_or_being_made():
            yield
            return
        own = self._mark.parent
        made = [each for each in (own, *own.parents) if not each.exists()]
        self._make_mark()
        try:
            yield
        except BaseException:
            with suppress(OSError):
                self._withdraw(made)
            raise

    def _make_mark(self) -> None:
        while True:
            self.files.make_dir(self._mark.parent)
            with suppress(FileNotFoundError):  # another open failed and removed the folder
                self.files.open(self._mark, write=True, create=True).close()
                self.files.sync_dir(self._mark.parent)
                return

    def _withdraw(self, made: list[Path]) -> None:
        """Remove what was created, unless a strategy has left files."""
        if self.commitlog.is_dir() or self._foreign(each.name for each in self.path.iterdir()):
            return
        self.remove_mark()
        for each in made:
            self.files.remove_dir(each)

    def remove_mark(self) -> None:
        """Remove the mark: the log's folder now identifies the directory as a store."""
        with suppress(FileNotFoundError):
            self.files.unlink(self._mark)

    @property
    def _mark(self) -> Path:
        return self.path / layout.OWN_DIR / layout.NEW_FILE

    def _foreign(self, names: Iterable[str]) -> set[str]:
        return set(names) - self._left_by_a_beginning()

    def _left_by_a_beginning(self) -> set[str]:
        """Names that an interrupted creation of a store may leave before it holds data."""
        names = {
            layout.OWN_DIR,
            layout.LOCK_FILE,
            layout.ABORT_FILE,
            layout.ABORT_BACKUP_FILE,
            "lost+found",
        }
        is_unused = read_checkpoint(self.files, self.path) == StoreCheckpoint()
        return names | {layout.CHECKPOINT_FILE} if is_unused else names

    def check_readable(self) -> None:
        """Raise :class:`~lakelog.errors.NotAStore` unless a store is there."""
        if self.is_new():
            raise NotAStore("no store is here; is the path right?", path=self.path)

    def check_segments(self, size_bytes: int) -> None:
        """Raise :class:`~lakelog.errors.BadSegment` if a recovery is impossible.

        Causes are files that are not segments, segments of another size, and missing segments.
        Changes nothing; recovery corrects other wrong lengths.
        """
        for problem in bad_segments(self.commitlog, self.files.list(self.commitlog), size_bytes):
            raise problem

    def temporary(self) -> Path:
        """The folder for unfinished segments, on the file system of the segments."""
        if self.commitlog.stat().st_dev == self.path.stat().st_dev:
            return self.path / layout.OWN_DIR / layout.TMP_DIR
        return self.commitlog.parent / f".{self.commitlog.name}.{layout.TMP_DIR}"

    def segments(self) -> list[SegmentFile]:
        """The segment files, in the order of the log."""
        return segment_files(self.commitlog, self.files.list(self.commitlog))

    def segment(self, start_offset: int) -> Path:
        """The path of the segment that starts at ``start_offset``."""
        return self.commitlog / layout.segment_name(start_offset)


def readable(error: OSError, path: Path) -> StoreError:
    """The error for a failure of the operating system: file, operation, cause, advice.

    :param path: the store, for an error that names no file
    """
    return StoreError(_words(error), path=error.filename or path)


def unread(error: OSError, path: Path) -> ReadFailed:
    """As :func:`readable`, for a failed read, which may be repeated."""
    return ReadFailed(_words(error), path=error.filename or path, error=error)


def _words(error: OSError) -> str:
    advice = _ADVICE.get(error.errno or 0)
    return f"{error.strerror or error}{'; ' if advice else ''}{advice or ''}"


_ADVICE: Final = {
    errno.ENOSPC: "make room on its file system",
    errno.EDQUOT: "make room: the quota of its file system is used up",
    errno.EFBIG: "raise the limit on the length of files",
    errno.EACCES: "check permissions of it and of the folders above; see the setting group",
    errno.EPERM: "check permissions of it and of the folders above; see the setting group",
    errno.EROFS: "check permissions: its file system is mounted for reading only",
    errno.EISDIR: "a file belongs there: move the directory away",
    errno.ENOTDIR: "a directory belongs there: move the file away",
    errno.EEXIST: "a directory belongs there: move the file away",
    errno.EIO: "check the disk",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENOMEM: "free memory, or raise its limit (ulimit -v, vm.max_map_count for maps)",
    errno.ENOLCK: "check that its file system supports locks",
    errno.ENFILE: "raise the system's limit of open files",
}
"""The advice to users, by error number."""
