"""Files of the operating system, as :mod:`lakelog_interfaces.files` requires, and tasks on them.

Tests and the crash simulator replace :class:`RealFileSystem`. Failures are ``OSError``; those of
the operating system name the file and the operation.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import attrs

from lakelog_interfaces.errors import ReadFailed
from lakelog.files.access import PRIVATE, Access, access_of, make_folder, open_regular
from lakelog_interfaces.files import FileIdentity
from lakelog.files.file_identity import stamp
from lakelog.files.sparse import next_not_zero
from lakelog_format.message import Body
from lakelog_interfaces.files import (
    File as File,
    FileSystem as FileSystem,
    read_file as read_file,
)

# Of Linux's renameat2(2).
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_NO_EXCHANGE: Final = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


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
        with _Naming("look at", self.path):
            return os.fstat(self._fd).st_size

    def read_at(self, position: int, length: int) -> bytes:
        """Read until ``length`` bytes or the end of the file."""
        try:
            data = os.pread(self._fd, length, position)
        except OSError as error:
            raise with_path(error, "read", self.path) from None
        if len(data) == length or not data:
            return data
        return data + self.read_at(position + len(data), length - len(data))

    def write_at(self, position: int, data: Body) -> None:
        """Write everything, continuing after short writes."""
        try:
            written = os.pwrite(self._fd, data, position)
            if written != len(data):
                self._write_rest(position, written, memoryview(data))
        except OSError as error:
            raise with_path(error, "write", self.path) from None

    def _write_rest(self, position: int, written: int, data: memoryview) -> None:
        while written < len(data):
            written += os.pwrite(self._fd, data[written:], position + written)

    def allocate(self, length: int, position: int = 0) -> None:
        """``posix_fallocate``."""
        with _Naming(f"allocate {length} bytes", self.path):
            os.posix_fallocate(self._fd, position, length)

    def truncate(self, length: int) -> None:
        """``ftruncate``."""
        with _Naming(f"set the length to {length} bytes", self.path):
            os.ftruncate(self._fd, length)

    def sync(self) -> None:
        """``fdatasync``."""
        with _Naming("sync", self.path):
            os.fdatasync(self._fd)

    def stamp(self) -> FileIdentity | None:
        """``utimensat``."""
        with _Naming("set the time of change", self.path):
            return stamp(self._fd)

    def next_data(self, position: int) -> int | None:
        """``lseek`` to data, skipping zeros that the file system reports as data."""
        with _Naming("find data", self.path):
            return next_not_zero(self._fd, position)

    def map(self, length: int, *, writable: bool, position: int = 0) -> mmap.mmap:
        """``mmap``, shared."""
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        with _Naming("map", self.path):
            return mmap.mmap(self._fd, length, access=access, offset=position)

    def close(self) -> None:
        """``close``."""
        with _Naming("close", self.path):
            os.close(self._fd)


class RealFileSystem:
    """The :class:`FileSystem` of the operating system.

    :ivar access: the rights of new files and folders
    """

    access: Access = PRIVATE

    @classmethod
    def of_store(cls, path: Path, group: str | None = None) -> RealFileSystem:
        """The file system for creating files in the store directory ``path``; see ``access_of``.

        Raises :class:`~lakelog.errors.SettingsError` for a ``group`` that cannot be assigned.
        """
        made = cls()
        made.access = access_of(path, group)
        return made

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """``open``; child programs do not inherit the descriptor."""
        flags = os.O_RDWR if write else os.O_RDONLY
        with _Naming("open", path):
            return RealFile(path, open_regular(path, flags, self.access, create=create))

    def list(self, directory: Path) -> list[tuple[str, int]]:
        """``scandir``."""
        with suppress(FileNotFoundError), _Naming("list", directory):
            return sorted(_no_directories(directory))
        return []

    def make_dir(self, path: Path, *, durable: bool = True) -> None:
        """``mkdir``, with a sync of each parent."""
        if path.is_dir():
            return
        self.make_dir(path.parent, durable=durable)
        with _Naming("make a directory", path):
            make_folder(path, self.access)
        if durable:
            self.sync_dir(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        """``rename``."""
        with _Naming(f"rename {source.name}", target):
            os.replace(source, target)

    def exchange(self, one: Path, other: Path) -> bool:
        """``renameat2`` with ``RENAME_EXCHANGE``."""
        return _exchange(one, other)

    def unlink(self, path: Path) -> None:
        """``unlink``."""
        with _Naming("remove", path):
            path.unlink()

    def remove_dir(self, path: Path) -> None:
        """``rmdir``."""
        with _Naming("remove", path):
            path.rmdir()

    def sync_dir(self, path: Path) -> None:
        """``fsync`` of the directory."""
        with _Naming("sync", path):
            _sync_dir(path)


class _Naming:
    """Adds the file and the operation to an ``OSError`` of its block.

    No generator: an error that leaves one stays in a cycle of frames until garbage is collected
    (Python 3.12 and later), and these frames may hold views of maps.
    """

    def __init__(self, operation: str, path: Path) -> None:
        self._names = operation, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            raise with_path(error, *self._names) from None


def with_path(error: OSError, operation: str, path: Path) -> OSError:
    """A copy of the error that names the file and the operation.

    Errors of calls on a descriptor lack both. Type and number are kept. An error with two file
    names gets one, ``path``.
    """
    why = f"cannot {operation}: {error.strerror or error}"
    return OSError(error.errno, why, str(path)) if error.errno is not None else error


def _sync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _no_directories(directory: Path) -> Iterator[tuple[str, int]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.is_dir():
                with suppress(FileNotFoundError):  # deleted meanwhile
                    yield entry.name, _length(entry)


def _length(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:  # a dangling link
        return entry.stat(follow_symlinks=False).st_size


def _exchange(one: Path, other: Path) -> bool:
    import ctypes  # slow to import, and rarely needed

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if not call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        return True
    error = ctypes.get_errno()
    if error in _NO_EXCHANGE:
        return False
    raise with_path(OSError(error, os.strerror(error)), f"exchange it with {one.name}", other)


def unreadable(path: Path, error: OSError) -> ReadFailed:
    """The error for an existing file that cannot be read."""
    return ReadFailed(
        f"it cannot be read ({error.strerror or error}); check the disk, permissions and the "
        "limit of open files",
        path=path,
        error=error,
    )


def folders_in(path: Path) -> list[Path]:
    """The folders in a folder, sorted; empty if the folder is missing."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    return []


def read_range(files: FileSystem, path: Path, position: int, length: int) -> bytes | None:
    """At most ``length`` bytes of a file from ``position`` on; ``None`` if it is missing.

    Raises :class:`~lakelog.errors.ReadFailed` if it cannot be opened or read.
    """
    try:
        with closing(files.open(path)) as file:
            return file.read_at(position, length)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error


def overwrite_file(files: FileSystem, path: Path, content: bytes) -> None:
    """Write a small file in place and sync it; the caller makes its name durable."""
    with closing(files.open(path, write=True, create=True)) as file:
        file.truncate(0)
        file.write_at(0, content)
        file.sync()


def sync_file(files: FileSystem, path: Path) -> None:
    """Sync a file that another process may have written."""
    with closing(files.open(path, write=True)) as file:
        file.sync()


def write_file(files: FileSystem, path: Path, content: bytes) -> None:
    """Replace a small file durably: temporary file, sync, rename, directory sync."""
    temporary = path.with_name(path.name + ".tmp")
    overwrite_file(files, temporary, content)
    files.rename(temporary, path)
    files.sync_dir(path.parent)


def free_name(target: Path) -> Path:
    """``target``, with a number appended if that name exists."""
    number, free = 1, target
    while free.exists():
        number, free = number + 1, target.with_name(f"{target.name}.{number}")
    return free


def remove_tree(files: FileSystem, path: Path) -> None:
    """Remove a folder and its content durably; does nothing if it is missing."""
    with suppress(FileNotFoundError):
        _empty(files, path)
        files.remove_dir(path)
        files.sync_dir(path.parent)


def _empty(files: FileSystem, path: Path) -> None:
    with os.scandir(path) as entries:
        found = [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in entries]
    for each, is_dir in found:
        if is_dir:
            _empty(files, each)
            files.remove_dir(each)
        else:
            files.unlink(each)
