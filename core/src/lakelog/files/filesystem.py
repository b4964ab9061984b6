"""Files of the operating system: the interface through which a store uses them, and tasks on it.

All access of a store to a disk goes through :class:`FileSystem`. Failures are ``OSError``; those of
the operating system name the file and the operation.

The kernel's file times have a resolution of a few milliseconds, so two writes within one tick
leave the same time. A file is therefore stamped, to detect writes: its modification time is set
back by one nanosecond. Any later write leaves a different time, even in the same tick.

A file system reports holes and unwritten blocks only until they are read. Then they are in the page
cache, and count as data (``lseek(2)``, ``SEEK_DATA``; ext4). After a crash this is the case for
most of the last segment, which its owner had mapped. So zeros are skipped by reading, too.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import (
    Any,
    Concatenate,
    Final,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    runtime_checkable,
)
from weakref import ref

import attrs

from lakelog.errors import NotOpened, ReadFailed
from lakelog.files.access import (
    PRIVATE,
    Access,
    access_of,
    make_folder,
    open_link,
    open_regular,
)
from lakelog.files.access import Descriptor as Descriptor  # noqa: PLC0414  # exported: plugins may import this module, not files.access
from lakelog.message import Body

NextData: TypeAlias = "Callable[[int], int | None]"
"""Position of the next bytes that may be non-zero, from a position on; ``None`` without any."""
Read: TypeAlias = "Callable[[int, int], Body]"
"""Reads bytes, given a position and the largest length."""
WINDOW_BYTES: Final = 4 << 20
"""The number of bytes read at once."""


NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a full disk, a quota, or the process's file size limit (``RLIMIT_FSIZE``)."""


class NoRoom(OSError):
    """A write, an allocation or a new name for which there is no room; a retry is safe.

    It says nothing of earlier writes. A sync, and a close, never raise it: their errors do.
    """


def chunks(next_data: NextData, read: Read, begin: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Yield the possibly non-zero bytes between two positions, in chunks of some MiB."""
    at = next_data(begin) if begin < stop else None
    while at is not None and at < stop:
        data = bytes(read(at, min(WINDOW_BYTES, stop - at)))
        if not data:
            return
        yield at, data
        at = next_data(at + len(data))


def last_nonzero(next_data: NextData, read: Read, begin: int, stop: int) -> int | None:
    """The position of the last non-zero byte between two positions; ``None`` without one."""
    last = None
    for position, data in chunks(next_data, read, begin, stop):
        if data != bytes(len(data)):  # faster than stripping, and nearly all bytes are zero
            last = position + len(data.rstrip(b"\x00")) - 1
    return last


class FileIdentity(NamedTuple):
    """One state of one file.

    :ivar inode: its number on its file system
    :ivar length: in bytes
    :ivar mtime_ns: last change of the content, in ns since 1970; can be set by programs
    :ivar ctime_ns: last change of content, names or attributes; set by the kernel only
    """

    inode: int
    length: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileIdentity:
        """From a ``stat`` result."""
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@runtime_checkable
class File(Protocol):
    """An open file; positions and lengths are in bytes.

    A protocol, as :class:`FileSystem` is, because tests and the crash simulator replace both.
    """

    @property
    def path(self) -> Path:
        """The path under which it was opened."""

    def fileno(self) -> int:
        """The descriptor, for operations that this interface lacks."""

    def size(self) -> int:
        """Its length, in bytes."""

    def read_at(self, position: int, length: int) -> bytes:
        """Read at most ``length`` bytes; fewer only at the end of the file."""

    def write_at(self, position: int, data: Body) -> None:
        """Write all of ``data``."""

    def allocate(self, length: int, position: int = 0) -> None:
        """Allocate disk blocks for ``length`` bytes from ``position``; existing content stays.

        A shorter file is extended.
        """

    def truncate(self, length: int) -> None:
        """Set the length."""

    def sync(self) -> None:
        """Make content and length durable (``fdatasync``), without holding the interpreter lock."""

    def stamp(self) -> FileIdentity | None:
        """Set a modification time that no write produces; return the identity, to detect writes.

        ``None`` if the file system does not keep such a time.
        """

    def next_data(self, position: int) -> int | None:
        """Position of the next bytes that may be non-zero; ``None`` if there are none."""

    def map(self, length: int, *, writable: bool, position: int = 0) -> FileMap:
        """Map ``length`` bytes from ``position``, a multiple of the page size, as shared memory.

        The bytes of a writable map must be allocated: a write into a hole raises SIGBUS on a full
        disk. So does each access to a page behind the end: files that another process may cut are
        read by :meth:`read_at`.

        Raises ``OSError``, also if the file is shorter.
        """

    def close(self) -> None:
        """Close the descriptor; maps stay valid."""


@runtime_checkable
class FileSystem(Protocol):
    """Operations on files by name."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """Open an existing regular file; with ``create``, create it if missing.

        Anything else, symbolic links included, raises ``OSError``.
        """

    def open_again(self, path: Path, link: str, *, write: bool = False) -> File:
        """Open the very file that a process has open, which may have no name any more.

        :param path: its former name, for errors
        :param link: the link of its descriptor in ``/proc``
        """

    def open_dir(self, path: Path) -> File:
        """Open a directory, to lock or to sync it."""

    def list(self, directory: Path) -> list[tuple[str, int]]:
        """Names and lengths of the entries that are not directories, sorted; empty if absent.

        Files that are not regular are listed too, so that :meth:`open` reports them.
        """

    def make_dir(self, path: Path, *, durable: bool = True) -> None:
        """Create a directory and its parents, unless they exist.

        If not ``durable``, the caller syncs the parent folders.
        """

    def rename(self, source: Path, target: Path) -> None:
        """Replace ``target`` by ``source`` atomically."""

    def exchange(self, one: Path, other: Path) -> bool:
        """Exchange two names atomically; ``False`` if the system does not support it."""

    def unlink(self, path: Path) -> None:
        """Delete a file name."""

    def remove_dir(self, path: Path) -> None:
        """Delete an empty directory."""

    def sync_dir(self, path: Path) -> None:
        """Make the names in a directory durable."""


class OpenedFile:
    """A file that is read by ``pread``, and closed with its last reference at the latest.

    A map would be faster for few bytes. But a load behind the end of a file that another process
    has cut kills this one; such a read gives fewer bytes.
    """

    def __init__(self, file: File) -> None:
        self._file: File | None = file
        self.read = file.read_at
        self.fileno = file.fileno

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()


def read_file(files: FileSystem, path: Path) -> bytes | None:
    """The content of a small file; ``None`` if it is missing."""
    try:
        with closing(files.open(path)) as file:
            return file.read_at(0, file.size())
    except (FileNotFoundError, NotADirectoryError):
        return None


def identity_at(path: Path) -> FileIdentity | None:
    """The identity of the file at ``path``; ``None`` if it cannot be read."""
    try:
        return FileIdentity.of(os.stat(path))
    except OSError:
        return None


_ASKED_BYTES: Final = 128 << 10
_ZEROS: Final = bytes(_ASKED_BYTES)
# Of Linux's renameat2(2).
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_NO_EXCHANGE: Final = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


_ANONYMOUS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_READ_WRITE: Final = mmap.PROT_READ | mmap.PROT_WRITE
# Of Linux's mmap(2).
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000
_MAP_FAILED: Final = 2 * sys.maxsize + 1
_BUFFER_BYTES: Final = 128
"""No less than the size of CPython's ``Py_buffer``, which starts with the address."""


class FileMap(mmap.mmap):
    """A map of a file, without a descriptor, that can end while there are views of it.

    Python's own map of a file keeps a copy of its descriptor, and cannot be closed while anything
    has a view of it: compiled code, a reference cycle, or the frames of an error.
    """

    _is_of_file = False

    @classmethod
    def of(cls, fd: int, length: int, position: int, *, writable: bool) -> FileMap:
        """Map a part of a file; raises ``OSError``."""
        protection = _READ_WRITE if writable else mmap.PROT_READ
        memory = cls(-1, length, flags=_ANONYMOUS | _MAP_NORESERVE, prot=protection)
        memory._replace(protection, mmap.MAP_SHARED, fd, position)
        memory._is_of_file = True
        return memory

    def unmap(self, *, keep: bool = False) -> None:
        """End the map; views of it see private memory from now on. A second call does nothing.

        :param keep: whether that memory has the present bytes; otherwise zeros, as a read-only one
        """
        if self._is_of_file:
            self._is_of_file = False
            view = memoryview(self)
            content = view.tobytes() if keep and not view.readonly else b""
            self._replace(_READ_WRITE, _ANONYMOUS, -1, 0)
            if content:
                view[:] = content

    def _replace(self, protection: int, flags: int, fd: int, position: int) -> None:
        """Replace all pages in one step."""
        import ctypes  # every process that appends has it already

        buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(self), buffer, 0)
        address = ctypes.c_void_p.from_buffer(buffer).value
        ctypes.pythonapi.PyBuffer_Release(buffer)
        flags |= _MAP_FIXED
        if _mmap()(address, len(self), protection, flags, fd, position) == _MAP_FAILED:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


@cache
def _mmap() -> Callable[..., Any]:
    import ctypes

    call = ctypes.CDLL(None, use_errno=True)["mmap"]
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    return call


P = ParamSpec("P")

Used: TypeAlias = "set[Descriptor | ref[FileMap]]"
"""The open files and maps of one open of a store."""


def _descriptor_of(given: Descriptor | File) -> Descriptor:
    found = given.descriptor if isinstance(given, RealFile) else given
    assert isinstance(found, Descriptor), found
    return found


@attrs.define(eq=False, repr=False)
class RealFile:
    """A :class:`File` of the operating system.

    :ivar descriptor: given as it is, or as another ``RealFile`` that has it
    """

    path: Path
    descriptor: Descriptor = attrs.field(converter=_descriptor_of)
    _used: Used | None = attrs.field(default=None, kw_only=True)
    _fd: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._fd = self.descriptor.number

    @classmethod
    def opened(
        cls,
        path: Path,
        used: Used | None,
        opens: Callable[Concatenate[Descriptor, P], None],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> Self:
        """The file that ``opens(descriptor, *arguments, **named)`` opens."""
        descriptor = Descriptor(used)
        try:
            opens(descriptor, *arguments, **named)
            return cls(path, descriptor, used=used)
        except BaseException:
            descriptor.close()
            raise

    def reopened(self) -> Self:
        """The file once more, for reading, without the flags of this one."""
        descriptor = Descriptor(self._used)
        try:
            descriptor.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)
            return attrs.evolve(self, descriptor=descriptor)
        except BaseException:
            descriptor.close()
            raise

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
            while written < len(data):
                written += os.pwrite(self._fd, memoryview(data)[written:], position + written)
        except OSError as error:
            raise with_path(error, "write", self.path) from None

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
        """``utimensat``, which sets the time back by 1 ns."""
        with _Naming("set the time of change", self.path):
            before = os.fstat(self._fd)
            mtime_ns = before.st_mtime_ns - 1
            os.utime(self._fd, ns=(before.st_atime_ns, mtime_ns))
            after = FileIdentity.of(os.fstat(self._fd))
        return after if after.mtime_ns == mtime_ns else None

    def next_data(self, position: int) -> int | None:
        """``lseek`` to data, skipping zeros that the file system reports as data."""
        with _Naming("find data", self.path):
            return _next_not_zero(self._fd, position)

    def map(self, length: int, *, writable: bool, position: int = 0) -> FileMap:
        """``mmap``, shared."""
        size = self.size()
        with _Naming("map", self.path):
            if not 0 < length <= size - position:
                raise OSError(errno.EINVAL, f"it has {size} bytes, not {position + length}")
            made = FileMap.of(self._fd, length, position, writable=writable)
        if self._used is not None:
            self._used.add(ref(made, self._used.discard))
        return made

    def close(self) -> None:
        """``close``; a second call does nothing."""
        self._fd = -1
        with _Naming("close", self.path):
            self.descriptor.close()


def _next_not_zero(fd: int, position: int) -> int | None:
    """A position before which all bytes from ``position`` on are zero; ``None`` if all are.

    It is the start of a window that has a non-zero byte, or that cannot be read.
    """
    window = bytearray(_ASKED_BYTES)
    at = _sought(fd, position)
    while at is not None:
        try:
            length = os.preadv(fd, [window], at)
        except OSError:
            return at  # the caller's read raises the error
        if length == 0:
            return None
        if window != _ZEROS if length == _ASKED_BYTES else any(window[:length]):
            return at
        at = _sought(fd, at + length)
    return None


def _sought(fd: int, position: int) -> int | None:
    """``lseek`` to data; if the file system does not support it, all bytes count as data."""
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        return position if position < os.fstat(fd).st_size else None


class RealFileSystem:
    """The :class:`FileSystem` of the operating system.

    :ivar access: the rights of new files and folders
    """

    access: Access = PRIVATE
    _used: Used | None = None

    @classmethod
    def of_store(cls, path: Path, group: str | None = None) -> RealFileSystem:
        """The file system for the store directory ``path``, for one open; see ``access_of``.

        Raises :class:`~lakelog.errors.SettingsError` for a ``group`` that cannot be assigned.
        """
        made = cls()
        made.access = access_of(path, group)
        made._used = set()
        return made

    def release(self) -> None:
        """Close all files and end all maps of this object, if it is for one open of a store.

        Whoever still has one reads zeros, or gets an error. A closed store and a forked child call
        this: what a reference cycle holds would stay open until Python's collector runs.
        """
        for each in list(self._used or ()):
            if isinstance(each, Descriptor):
                with suppress(OSError):
                    each.close()
            elif (used := each()) is not None:
                used.unmap(keep=True)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """``open``; child programs do not inherit the descriptor."""
        flags, used = os.O_RDWR if write else os.O_RDONLY, self._used
        with _Naming("open", path, opens=True):
            return RealFile.opened(
                path, used, open_regular, path, flags, self.access, create=create
            )

    def open_again(self, path: Path, link: str, *, write: bool = False) -> File:
        """``open``, which follows the link; child programs do not inherit the descriptor."""
        flags = os.O_RDWR if write else os.O_RDONLY
        with _Naming("open", path):
            return RealFile.opened(path, self._used, open_link, link, flags)

    def open_dir(self, path: Path) -> File:
        """``open``, for reading; child programs do not inherit the descriptor."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        with _Naming("open", path):
            return RealFile.opened(path, self._used, Descriptor.open, path, flags)

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
            make_folder(path, self.access, self._used)
        if durable:
            self.sync_dir(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        """``rename``."""
        with _Naming("replace" if _known(source) == target else f"rename {source.name}", target):
            os.replace(source, target)

    def exchange(self, one: Path, other: Path) -> bool:
        """``renameat2`` with ``RENAME_EXCHANGE``."""
        import ctypes  # slow to import, and rarely needed

        call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if call is None:
            return False
        names = _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other)
        if not call(*names, _RENAME_EXCHANGE):
            return True
        error = ctypes.get_errno()
        if error in _NO_EXCHANGE:
            return False
        raise with_path(OSError(error, os.strerror(error)), f"exchange it with {one.name}", other)

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
        folder = Descriptor(self._used)
        with _Naming("sync", path):
            try:
                with _Naming("open", path, opens=True):
                    try:
                        folder.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    except OSError as error:
                        if error.errno in NO_ROOM:  # no sync was tried
                            raise not_opened(error, "open", path) from None
                        raise
                os.fsync(folder.number)
            finally:
                folder.close()


class _Naming:
    """Adds the file and the operation to an ``OSError`` of its block.

    No generator: an error that leaves one stays in a cycle of frames until garbage is collected
    (Python 3.12 and later), and these frames may hold views of maps.
    """

    def __init__(self, operation: str, path: Path, *, opens: bool = False) -> None:
        self._names, self._opens = (operation, path), opens

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, NotOpened | NoRoom):
            return
        if isinstance(error, OSError):
            if error.errno in _NO_DESCRIPTOR or (self._opens and error.errno in _NOT_NOW):
                raise not_opened(error, *self._names) from None
            raise with_path(error, *self._names) from None


_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
NO_RIGHTS: Final = (errno.EACCES, errno.EPERM)
_NOT_NOW: Final = (errno.ENOMEM, *NO_RIGHTS)
"""Errors of an open that say nothing of the file: a sync of its bytes is still possible later."""


def lacks_resources(error: Exception) -> bool:
    """Whether a call failed for want of descriptors, memory, rights or room, and may work later."""
    return isinstance(error, MemoryError | NotOpened | NoRoom) or (
        isinstance(error, OSError) and error.errno in (*_NO_DESCRIPTOR, *_NOT_NOW)
    )


def no_sync_tried(error: BaseException) -> bool:
    """Whether a sync, with all that it needs, failed before any byte could be lost.

    An import on first use lacks a descriptor without :class:`NotOpened`. No sync fails so.
    """
    return isinstance(error, NotOpened | NoRoom) or (
        isinstance(error, OSError) and error.errno in _NO_DESCRIPTOR
    )


def not_opened(error: OSError, operation: str, path: Path) -> NotOpened:
    """The error for a file that cannot be opened for want of descriptors, memory or rights."""
    remedy = "close some files, then try again"
    if error.errno == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        remedy = (
            f"this process may have {most} open files (RLIMIT_NOFILE): raise it (ulimit -n), or "
            "close some, then try again"
        )
    elif error.errno in NO_ROOM:
        remedy = "make room on its disk, then try again"
    elif error.errno in NO_RIGHTS:
        remedy = "check permissions of it and of the folders above; see the setting group"
    what = f"cannot {operation}: {error.strerror}; {remedy}"
    return NotOpened(what, path=_known(path), error=error)


def with_path(error: OSError, operation: str, path: Path) -> OSError:
    """A copy of the error that names the file and the operation.

    Errors of calls on a descriptor lack both. Type and number are kept, except that an error for
    want of room becomes :class:`NoRoom`. An error with two file names gets one, ``path``. A
    temporary file is named as the one that it is to replace, unless its own name is in the way.
    """
    why = f"cannot {operation}: {error.strerror or error}"
    if error.errno is None:
        return error
    known = path if error.errno in _IN_THE_WAY else _known(path)
    is_no_room = error.errno in NO_ROOM and operation not in _OF_EARLIER_WRITES
    return (NoRoom if is_no_room else OSError)(error.errno, why, str(known))


_IN_THE_WAY: Final = (errno.ELOOP, errno.EISDIR, errno.EINVAL)
"""Errors of a name that is a link, a folder, or no regular file."""
_OF_EARLIER_WRITES: Final = ("sync", "close")
"""Operations whose error may be that of a write that seemed to succeed."""


def _known(path: Path) -> Path:
    """The file that users know, for a temporary one that is to replace it."""
    return path.with_name(_TEMPORARY_SUFFIX.sub("", path.name) or path.name)


_TEMPORARY_SUFFIX: Final = re.compile(r"(\.\d+)?\.tmp$")


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


def unreadable(path: Path, error: OSError, what: str = "read") -> ReadFailed:
    """The error for an existing file that cannot be read, or, as ``what`` says, be opened."""
    if isinstance(error, NotOpened):
        return error
    return ReadFailed(
        f"it cannot be {what} ({error.strerror or error}); check the disk, permissions and the "
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


def overwrite_file(files: FileSystem, path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a small file in place, and sync it if ``durable``; the caller syncs its name."""
    with closing(files.open(path, write=True, create=True)) as file:
        file.truncate(0)
        file.write_at(0, content)
        if durable:
            file.sync()


def sync_file(files: FileSystem, path: Path) -> None:
    """Sync a file that another process may have written."""
    with closing(files.open(path, write=True)) as file:
        file.sync()


def write_file(files: FileSystem, path: Path, content: bytes, *, syncs_name: bool = True) -> None:
    """Replace a small file durably: temporary file, sync, rename, directory sync.

    An ``OSError`` leaves no temporary file, if that can be removed.

    :param syncs_name: false if the caller syncs the directory
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        overwrite_file(files, temporary, content)
        files.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            files.unlink(temporary)
        raise
    if syncs_name:
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
