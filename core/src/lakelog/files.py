"""The one seam to the operating system's files: all that a store does to a disk goes through here.

A test, or the crash simulator, stands in for :class:`RealFileSystem`. Failures are ``OSError``.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import attrs

from lakelog.message import Body

FILE_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o755

# Of Linux's renameat2(2).
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_NO_EXCHANGE: Final = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


@runtime_checkable
class File(Protocol):
    """An open file; positions and lengths are in bytes."""

    @property
    def path(self) -> Path:
        """Where it was opened."""

    def fileno(self) -> int:
        """The descriptor, for what this seam does not cover."""

    def size(self) -> int:
        """Its length."""

    def read_at(self, position: int, length: int) -> bytes:
        """What is there: at most ``length`` bytes, fewer only at the end of the file."""

    def write_at(self, position: int, data: Body) -> None:
        """Write all of ``data``."""

    def allocate(self, length: int) -> None:
        """Make the file at least ``length`` long, all of it backed by blocks of the disk."""

    def truncate(self, length: int) -> None:
        """Set the length."""

    def sync(self) -> None:
        """Make the content and the length durable (``fdatasync``); frees the interpreter lock."""

    def next_data(self, position: int) -> int | None:
        """Where the next bytes stand that may be other than zero; ``None`` if none do."""

    def map(self, length: int, *, writable: bool) -> mmap.mmap:
        """The first ``length`` bytes as shared memory; they must be allocated."""

    def close(self) -> None:
        """Let go of the descriptor; maps stay."""


@runtime_checkable
class FileSystem(Protocol):
    """Files by name."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """Open a file that is there; with ``create``, make it if it is not."""

    def list(self, directory: Path) -> list[tuple[str, int]]:
        """Names and lengths of the regular files in a directory, sorted; none if it is absent."""

    def make_dir(self, path: Path, *, durable: bool = True) -> None:
        """Make a directory and its parents; nothing happens to one that is there.

        Where not ``durable``, it is for the caller to sync the folders that they are in.
        """

    def rename(self, source: Path, target: Path) -> None:
        """Put ``source`` in the place of ``target`` at once."""

    def exchange(self, one: Path, other: Path) -> bool:
        """Let two names change places at once; ``False`` where the system cannot do that."""

    def unlink(self, path: Path) -> None:
        """Remove a file's name."""

    def remove_dir(self, path: Path) -> None:
        """Remove a directory in which nothing is."""

    def sync_dir(self, path: Path) -> None:
        """Make the names in a directory durable."""


@attrs.frozen(eq=False)
class RealFile:
    """A :class:`File` of the operating system."""

    path: Path
    _fd: int

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def size(self) -> int:
        """Its length in bytes."""
        return os.fstat(self._fd).st_size

    def read_at(self, position: int, length: int) -> bytes:
        """Read until ``length`` bytes or the end of the file."""
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        return data + self.read_at(position + len(data), length - len(data))

    def write_at(self, position: int, data: Body) -> None:
        """Write, and go on after a short write."""
        written = os.pwrite(self._fd, data, position)
        if written == len(data):
            return
        rest = memoryview(data)[written:]
        while rest:
            position += written
            written = os.pwrite(self._fd, rest, position)
            rest = rest[written:]

    def allocate(self, length: int) -> None:
        """``posix_fallocate``."""
        os.posix_fallocate(self._fd, 0, length)

    def truncate(self, length: int) -> None:
        """``ftruncate``."""
        os.ftruncate(self._fd, length)

    def sync(self) -> None:
        """``fdatasync``."""
        os.fdatasync(self._fd)

    def next_data(self, position: int) -> int | None:
        """``lseek`` to data; where the file system cannot tell, everything is data."""
        try:
            return os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            return position if position < self.size() else None

    def map(self, length: int, *, writable: bool) -> mmap.mmap:
        """``mmap``, shared."""
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return mmap.mmap(self._fd, length, access=access)

    def close(self) -> None:
        """``close``."""
        os.close(self._fd)


@attrs.frozen
class RealFileSystem:
    """The :class:`FileSystem` of the operating system."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """``open``; descriptors are not inherited by child programs."""
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY)
        return RealFile(path, os.open(path, flags | (os.O_CREAT if create else 0), FILE_MODE))

    def list(self, directory: Path) -> list[tuple[str, int]]:
        """``scandir``."""
        try:
            return sorted(_regular_files(directory))
        except FileNotFoundError:
            return []

    def make_dir(self, path: Path, *, durable: bool = True) -> None:
        """``mkdir``, each new name synced in its parent."""
        if path.is_dir():
            return
        self.make_dir(path.parent, durable=durable)
        path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        if durable:
            self.sync_dir(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        """``rename``."""
        os.replace(source, target)

    def exchange(self, one: Path, other: Path) -> bool:
        """``renameat2`` with ``RENAME_EXCHANGE``."""
        return _exchange(one, other)

    def unlink(self, path: Path) -> None:
        """``unlink``."""
        path.unlink()

    def remove_dir(self, path: Path) -> None:
        """``rmdir``."""
        path.rmdir()

    def sync_dir(self, path: Path) -> None:
        """``fsync`` of the directory."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _regular_files(directory: Path) -> Iterator[tuple[str, int]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_file():
                yield entry.name, entry.stat().st_size


def _exchange(one: Path, other: Path) -> bool:
    import ctypes  # takes longer to import than a store to open, and few exchange anything

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    done = call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if done == 0:
        return True
    error = ctypes.get_errno()
    if error in _NO_EXCHANGE:
        return False
    raise OSError(error, os.strerror(error), str(other))


def read_file(files: FileSystem, path: Path) -> bytes | None:
    """The whole content of a small file, or ``None`` if it is not there."""
    try:
        file = files.open(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def overwrite_file(files: FileSystem, path: Path, content: bytes) -> None:
    """Write a small file in place and sync it; its name is for the caller to make durable."""
    file = files.open(path, write=True, create=True)
    try:
        file.truncate(0)
        file.write_at(0, content)
        file.sync()
    finally:
        file.close()


def write_file(files: FileSystem, path: Path, content: bytes) -> None:
    """Replace a small file durably: temporary file, sync, rename, directory sync."""
    temporary = path.with_name(path.name + ".tmp")
    overwrite_file(files, temporary, content)
    files.rename(temporary, path)
    files.sync_dir(path.parent)
