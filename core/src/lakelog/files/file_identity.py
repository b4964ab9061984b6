"""What tells a file that nobody has written to from any other: inode, length and times of change.

The kernel takes its times from a clock that ticks every few milliseconds, so that two writes within
one tick leave the same time. A file is stamped therefore: its time of change is set one nanosecond
back. A write that comes later, in the same tick or another, leaves a time that is not that one.
"""

from __future__ import annotations

import os
from pathlib import Path

import attrs


@attrs.frozen
class FileIdentity:
    """One state of one file.

    :ivar inode: its number on its file system
    :ivar length: in bytes
    :ivar mtime_ns: last change of the content, in ns since 1970; can be set by anybody
    :ivar ctime_ns: last change of content, names or attributes; set by the kernel alone
    """

    inode: int
    length: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileIdentity:
        """From what ``stat`` says."""
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def identity_at(path: Path) -> FileIdentity | None:
    """The identity of the file at ``path``; ``None`` where none can be seen."""
    try:
        return FileIdentity.of(os.stat(path))
    except OSError:
        return None


def stamp(fd: int) -> FileIdentity | None:
    """Set the time of change of an open file back by 1 ns; its identity after that.

    ``None`` where the file system does not keep nanoseconds. Raises ``OSError``.
    """
    before = os.fstat(fd)
    mtime_ns = before.st_mtime_ns - 1
    os.utime(fd, ns=(before.st_atime_ns, mtime_ns))
    after = FileIdentity.of(os.fstat(fd))
    return after if after.mtime_ns == mtime_ns else None
