"""Switching O_DIRECT on, and making sure that it is: nothing here falls back in silence.

``statx`` with ``STATX_DIOALIGN`` (Linux 6.1) tells what a file system wants. Where it does not, the
file system counts as able to, if it takes the flag; but for those in memory (tmpfs), which take it
since Linux 6.6 and have nothing but the page cache.
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
    """Make every write to ``file`` from now on go past the page cache.

    Raises ``OSError`` where the file system cannot do that in blocks of ``block_bytes``.
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


def check_place(directory: Path, block_bytes: int) -> None:
    """Try in a folder, or the nearest one above that is there, with a file that has no name.

    Leaves nothing behind. Raises as :func:`switch_on`; where no such file can be made, nothing is
    told, and the first segment will.
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
    """What direct access of a file must be aligned to; 0 if there is none, ``None`` if unknown."""
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
    """Whether a file has no disk behind it."""
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None, use_errno=True).fstatfs(fd, found):
        return False
    return int(struct.unpack_from("=q", found.raw)[0]) in _IN_MEMORY


def _refused(path: Path, why: str) -> OSError:
    what = f"the writer 'direct' cannot write here: {why}; choose another writer"
    return OSError(errno.EINVAL, what, str(path))
