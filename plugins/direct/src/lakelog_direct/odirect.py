"""Enables O_DIRECT and verifies it: nothing here falls back silently.

``statx`` with ``STATX_DIOALIGN`` (Linux 6.1) returns the alignment that a file system requires.
Without that, a file system that accepts the flag is considered capable. Exceptions are file systems
in memory (tmpfs): they accept it since Linux 6.6, but have only the page cache.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from lakelog.files.filesystem import File, RealFile

_AT_EMPTY_PATH: Final = 0x1000
_STATX_DIOALIGN: Final = 0x2000
_STATX_BYTES: Final = 256
_MEMORY_ALIGN_AT: Final = 0x98
"""``stx_dio_mem_align``, then ``stx_dio_offset_align``, four bytes each."""
_IN_MEMORY: Final = frozenset({0x0102_1994, 0x8584_58F6, 0x9584_58F6})
"""Types of file systems by ``statfs(2)``: tmpfs, ramfs, hugetlbfs."""
_STATFS_BYTES: Final = 256
_BUFFERED: Final = "its file system takes O_DIRECT, and buffers all the same"


def switch_on(file: File, block_bytes: int) -> None:
    """Make all later writes to ``file`` bypass the page cache.

    Raises ``OSError`` if the file system does not support that with blocks of ``block_bytes``.
    """
    fd = file.fileno()
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError as error:
        raise _refused(file.path, f"its file system refuses O_DIRECT ({error.strerror})") from error
    if not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
        raise _refused(file.path, "O_DIRECT did not stay switched on")
    needed = alignment_bytes(fd)
    if needed is None:
        if _in_memory(fd):
            raise _refused(file.path, _BUFFERED)
    elif needed == 0:
        raise _refused(file.path, "its file system has no direct access for this file")
    elif block_bytes % needed:
        raise _refused(
            file.path,
            f"its file system wants blocks of {needed} bytes, not {block_bytes}; set "
            f"[direct] block_bytes to {needed}",
        )


def check_directory(directory: Path, block_bytes: int) -> None:
    """Try O_DIRECT with an unnamed file in a folder, or in its nearest existing parent.

    Leaves nothing behind. Raises like :func:`switch_on`. If no such file can be created, it reports
    nothing; the first segment then will.
    """
    while not directory.is_dir() and directory != directory.parent:
        directory = directory.parent
    try:
        fd = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    file = RealFile(directory, fd)
    try:
        switch_on(file, block_bytes)
    finally:
        file.close()


def alignment_bytes(fd: int) -> int | None:
    """The required alignment for direct access to a file; 0 if unsupported, ``None`` if unknown."""
    statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
    if statx is None:
        return None
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(fd, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, found):
        return None
    if not struct.unpack_from("=I", found.raw)[0] & _STATX_DIOALIGN:
        return None
    memory, offset = struct.unpack_from("=II", found.raw, _MEMORY_ALIGN_AT)
    return max(int(memory), int(offset))


def _in_memory(fd: int) -> bool:
    """Whether the file system is in memory, without a disk."""
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None, use_errno=True).fstatfs(fd, found):
        return False
    return int(struct.unpack_from("=q", found.raw)[0]) in _IN_MEMORY


def _refused(path: Path, why: str) -> OSError:
    what = f"the writer 'direct' cannot write here: {why}; choose another writer"
    return OSError(errno.EINVAL, what, str(path))
