"""Skips the zeros of a file, by the holes that the file system reports, and by reading.

A file system reports holes and unwritten blocks only until they are read. Then they are in the page
cache, and count as data (``lseek(2)``, ``SEEK_DATA``; ext4). After a crash this is the case for
most of the last segment, which its owner had mapped.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from lakelog_format.message import Body

_ASKED_BYTES: Final = 128 << 10
_ZEROS: Final = bytes(_ASKED_BYTES)


def next_not_zero(fd: int, position: int) -> int | None:
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


NextData: TypeAlias = "Callable[[int], int | None]"
"""Position of the next bytes that may be non-zero, from a position on; ``None`` without any."""
Read: TypeAlias = "Callable[[int, int], Body]"
"""Reads bytes, given a position and the largest length."""
WINDOW_BYTES: Final = 4 << 20
"""The number of bytes read at once."""


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
