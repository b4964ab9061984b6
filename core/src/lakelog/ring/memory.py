"""The memory of a ring: a file without a name, whose length nobody can change.

The owner makes it, seals it, and passes its descriptor. A file that another process could
truncate would kill with SIGBUS whoever looks at it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Final

from lakelog.errors import RingNonsense
from lakelog.ring.layout import ALIGNMENT, AT_CAPACITY, AT_MAGIC, HEADER_BYTES, MAGIC

_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
LEAST_BYTES: Final = HEADER_BYTES + 8 * ALIGNMENT


def make_memory(size: int) -> int:
    """A descriptor of ``size`` bytes: a ring without entries.

    Allocated here, so that no store into it can fail. Raises ``OSError`` where there is no room,
    ``ValueError`` for a size that is no multiple of 128, or too small.
    """
    if size % ALIGNMENT or size < LEAST_BYTES:
        raise ValueError(f"a ring of {size} bytes cannot be; give a multiple of {ALIGNMENT}")
    fd = os.memfd_create("lakelog-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        words = map_memory(fd, size).cast("Q")
        words[AT_CAPACITY] = size - HEADER_BYTES
        words[AT_MAGIC] = MAGIC
    except BaseException:  # Ctrl-C too
        os.close(fd)
        raise
    return fd


def map_memory(fd: int, size: int) -> memoryview:
    """The bytes of a ring; ``fd`` may be closed after this.

    Raises :class:`~lakelog.errors.RingNonsense` where it is not sealed, or of another size.
    """
    found = os.fstat(fd).st_size
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if found != size or seals & _SEALS != _SEALS:
        raise RingNonsense(f"the ring has {found} bytes and seals {seals}; {size}, {_SEALS} wanted")
    return memoryview(mmap.mmap(fd, size))
