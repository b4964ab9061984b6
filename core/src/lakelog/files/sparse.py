"""Skips the zeros of a file, by asking the file system and by reading.

The file system knows holes and unwritten blocks, until they are read: then they are in the page
cache and count as data (``lseek(2)``, ``SEEK_DATA``; ext4). After a crash this is true for most of
the last segment, which its owner had mapped.
"""

from __future__ import annotations

import errno
import os
from typing import Final

_WINDOW_BYTES: Final = 128 << 10
_ZEROS: Final = bytes(_WINDOW_BYTES)


def next_not_zero(fd: int, position: int) -> int | None:
    """A position before which all bytes from ``position`` on are zero; ``None`` if all are.

    It is the start of a window that has a non-zero byte, or that cannot be read.
    """
    window = bytearray(_WINDOW_BYTES)
    at = _sought(fd, position)
    while at is not None:
        try:
            length = os.preadv(fd, [window], at)
        except OSError:
            return at  # the caller's read raises the error
        if length == 0:
            return None
        if window != _ZEROS if length == _WINDOW_BYTES else any(window[:length]):
            return at
        at = _sought(fd, at + length)
    return None


def _sought(fd: int, position: int) -> int | None:
    """``lseek`` to data; without support of the file system, everything is data."""
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        return position if position < os.fstat(fd).st_size else None
