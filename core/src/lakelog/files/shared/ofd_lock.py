"""Open-file-description locks on bytes of a file (fcntl(2), ``F_OFD_SETLK``).

POSIX lockers, Java's included, see them; a second open in the same process is refused; and closing
another descriptor of the file does not release them. The kernel ends them with the process. A
forked child would hold them with its parent, so it closes its copy of the descriptor.
"""

from __future__ import annotations

import errno
import fcntl
import os
from struct import Struct
from typing import Final

from lakelog.files.filesystem import File, told

FLOCK: Final = Struct("hhqqi4x")
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


def set_lock(file: File, at: int, kind: int) -> bool:
    """Take, change or let go of this open file's lock on byte ``at``, without waiting.

    :param kind: ``F_RDLCK`` to share it, ``F_WRLCK`` to have it alone, ``F_UNLCK`` to let it go
    :returns: whether it was done; where another open file is in the way, what was held stays

    Raises ``OSError`` where the system gives no such locks.
    """
    try:
        fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, FLOCK.pack(kind, os.SEEK_SET, at, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise told(error, "lock", file.path) from None
    return True


def unlock_all(file: File) -> None:
    """Let go of all of this open file's locks."""
    fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))


def is_locked(file: File, at: int, kind: int) -> bool:
    """Whether another open file's lock on byte ``at`` is in the way of one of ``kind``."""
    asked = FLOCK.pack(kind, os.SEEK_SET, at, 1, 0)
    try:
        answer = fcntl.fcntl(file.fileno(), fcntl.F_OFD_GETLK, asked)
    except OSError as error:
        raise told(error, "look at the locks of", file.path) from None
    return bool(FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
