"""Passes over the zeros of a file, by what the file system knows and by looking.

The file system knows holes, and what was allocated but never written, until somebody has read it:
then it stands in the page cache, and passes for data (``lseek(2)``, ``SEEK_DATA``; ext4). After a
crash that is most of the last segment, which its owner had mapped.
"""

from __future__ import annotations

import errno
import os
from typing import Final

_WINDOW_BYTES: Final = 128 << 10
_ZEROS: Final = bytes(_WINDOW_BYTES)


def next_not_zero(fd: int, position: int) -> int | None:
    """A place from ``position`` on before which all is zero; ``None`` if nothing else comes.

    It is that of a window of bytes which are not all zero, or which cannot be read.
    """
    window = bytearray(_WINDOW_BYTES)
    at = _sought(fd, position)
    while at is not None:
        try:
            length = os.preadv(fd, [window], at)
        except OSError:
            return at  # who reads there hears of it
        if length == 0:
            return None
        if window != _ZEROS if length == _WINDOW_BYTES else any(window[:length]):
            return at
        at = _sought(fd, at + length)
    return None


def _sought(fd: int, position: int) -> int | None:
    """``lseek`` to data; where the file system cannot tell, everything is data."""
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        return position if position < os.fstat(fd).st_size else None
