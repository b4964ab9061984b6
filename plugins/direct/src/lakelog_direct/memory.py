"""Calls on memory that Python lacks, or makes while it holds the interpreter lock; by ctypes."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress

PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def anonymous(length: int) -> mmap.mmap:
    """Zeroed memory that begins at a page, and takes room once it is written."""
    found = mmap.mmap(-1, length, flags=PRIVATE)
    with suppress(OSError):  # of a system without huge pages
        found.madvise(mmap.MADV_HUGEPAGE)  # one fault per 2 MiB
    return found


def owned(memory: mmap.mmap) -> ctypes.Array[ctypes.c_char]:
    """``memory`` as an object that each view of it keeps alive, and whose end can be heard of."""
    return (ctypes.c_char * len(memory)).from_buffer(memory)


def zero(memory: mmap.mmap, length: int) -> None:
    """Zero the first ``length`` bytes; leaves the interpreter lock free."""
    start = ctypes.c_char.from_buffer(memory)
    ctypes.memset(ctypes.addressof(start), 0, length)


def lock(memory: mmap.mmap) -> None:
    """Keep ``memory`` out of swap; raises ``OSError``, mostly for ``RLIMIT_MEMLOCK``."""
    libc = ctypes.CDLL(None, use_errno=True)
    start = ctypes.c_char.from_buffer(memory)
    if libc.mlock(ctypes.byref(start), ctypes.c_size_t(len(memory))):
        code = ctypes.get_errno()
        raise OSError(
            code,
            f"mlock of a buffer of {len(memory)} bytes: {os.strerror(code)}; raise RLIMIT_MEMLOCK, "
            "or switch lock_memory off",
        )
