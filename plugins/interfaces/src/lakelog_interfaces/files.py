"""The interface to the operating system's files; all access of a store to a disk goes through it.

Tests and the crash simulator replace it. Failures are ``OSError``; those of the operating system
name the file and the operation.
"""

from __future__ import annotations

import mmap
import os
from contextlib import closing
from pathlib import Path
from typing import Protocol, runtime_checkable

import attrs

from lakelog_format.message import Body


@attrs.frozen
class FileIdentity:
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
    """An open file; positions and lengths are in bytes."""

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

    def map(self, length: int, *, writable: bool, position: int = 0) -> mmap.mmap:
        """Map ``length`` bytes from ``position``, a multiple of the page size, as shared memory.

        The bytes of a writable map must be allocated: a write into a hole raises SIGBUS on a full
        disk.
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


def read_file(files: FileSystem, path: Path) -> bytes | None:
    """The content of a small file; ``None`` if it is missing."""
    try:
        with closing(files.open(path)) as file:
            return file.read_at(0, file.size())
    except (FileNotFoundError, NotADirectoryError):
        return None
