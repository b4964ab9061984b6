"""Open-file-description locks on bytes of a file (fcntl(2), ``F_OFD_SETLK``).

They conflict with POSIX locks, Java's included, and with a second open in the same process. Closing
another descriptor of the file does not release them. The kernel releases them when the process
ends. A forked child closes its copy of the descriptor, which would keep them alive.
"""

from __future__ import annotations

import errno
import fcntl
import os
from struct import Struct
from typing import Final

from lakelog.files.filesystem import File, with_path

FLOCK: Final = Struct("hhqqi4x")
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


def set_lock(file: File, at: int, kind: int) -> bool:
    """Set, convert or release this open file's lock on byte ``at``, without blocking.

    :param kind: ``F_RDLCK`` for shared, ``F_WRLCK`` for exclusive, ``F_UNLCK`` to release
    :returns: whether it was done; on a conflict the former lock stays

    Raises ``OSError`` if the system does not support such locks.
    """
    try:
        fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, FLOCK.pack(kind, os.SEEK_SET, at, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise with_path(error, "lock", file.path) from None
    return True


def unlock_all(file: File) -> None:
    """Release all locks of this open file; raises ``OSError``."""
    fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))


def is_locked(file: File, at: int, kind: int) -> bool:
    """Whether a lock of another open file on byte ``at`` conflicts with one of ``kind``.

    Raises ``OSError`` if the system does not support such locks.
    """
    asked = FLOCK.pack(kind, os.SEEK_SET, at, 1, 0)
    try:
        answer = fcntl.fcntl(file.fileno(), fcntl.F_OFD_GETLK, asked)
    except OSError as error:
        raise with_path(error, "look at the locks of", file.path) from None
    return bool(FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
