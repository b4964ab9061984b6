"""The identity of a file's state: inode, length and times of change, to detect writes.

The kernel's file times have a resolution of a few milliseconds, so two writes within one tick
leave the same time. A file is therefore stamped: its modification time is set back by one
nanosecond. Any later write leaves a different time, even in the same tick.
"""

from __future__ import annotations

import os
from pathlib import Path

from lakelog_interfaces.files import FileIdentity


def identity_at(path: Path) -> FileIdentity | None:
    """The identity of the file at ``path``; ``None`` if it cannot be read."""
    try:
        return FileIdentity.of(os.stat(path))
    except OSError:
        return None


def stamp(fd: int) -> FileIdentity | None:
    """Set an open file's modification time back by 1 ns; return its identity.

    ``None`` if the file system does not keep nanoseconds. Raises ``OSError``.
    """
    before = os.fstat(fd)
    mtime_ns = before.st_mtime_ns - 1
    os.utime(fd, ns=(before.st_atime_ns, mtime_ns))
    after = FileIdentity.of(os.fstat(fd))
    return after if after.mtime_ns == mtime_ns else None
