"""Memory calls that Python's ``mmap`` lacks: ``mlock`` by ctypes, and touching pages."""

from __future__ import annotations

import mmap
import os


def lock(memory: mmap.mmap) -> None:
    """Lock ``memory`` into RAM; raises ``OSError``, usually because of ``RLIMIT_MEMLOCK``."""
    _call("mlock", memory)


def _call(name: str, memory: mmap.mmap) -> None:
    import ctypes  # slower to import than a store is to open, and rarely needed

    libc = ctypes.CDLL(None, use_errno=True)
    start = ctypes.c_char.from_buffer(memory)
    try:
        failed = libc[name](ctypes.byref(start), ctypes.c_size_t(len(memory)))
    finally:
        del start
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, f"{name} of {len(memory)} bytes: {os.strerror(code)}")


def touch(memory: mmap.mmap, position: int) -> None:
    """Write a zero to each page from ``position`` on, which must hold no data yet."""
    first = -(-position // mmap.PAGESIZE) * mmap.PAGESIZE
    for at in range(first, len(memory), mmap.PAGESIZE):
        memory[at] = 0
