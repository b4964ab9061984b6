"""Memory calls that Python lacks, or makes with the interpreter lock held; by ctypes."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress

PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def anonymous(length: int) -> mmap.mmap:
    """Zeroed, page-aligned memory, allocated by the system on first write."""
    found = mmap.mmap(-1, length, flags=PRIVATE)
    with suppress(OSError):  # on systems without huge pages
        found.madvise(mmap.MADV_HUGEPAGE)  # one fault per 2 MiB
    return found


def owned(memory: mmap.mmap) -> ctypes.Array[ctypes.c_char]:
    """``memory`` as an object that is kept alive by its views, and accepts finalizers."""
    return (ctypes.c_char * len(memory)).from_buffer(memory)


def zero(memory: mmap.mmap, length: int) -> None:
    """Zero the first ``length`` bytes; releases the interpreter lock."""
    start = ctypes.c_char.from_buffer(memory)
    ctypes.memset(ctypes.addressof(start), 0, length)


def lock(memory: mmap.mmap) -> None:
    """Lock ``memory`` into RAM; raises ``OSError``, usually because of ``RLIMIT_MEMLOCK``."""
    libc = ctypes.CDLL(None, use_errno=True)
    start = ctypes.c_char.from_buffer(memory)
    if libc.mlock(ctypes.byref(start), ctypes.c_size_t(len(memory))):
        code = ctypes.get_errno()
        raise OSError(
            code,
            f"mlock of {len(memory)} bytes: {os.strerror(code)}; raise RLIMIT_MEMLOCK, "
            "or switch lock_memory off",
        )
