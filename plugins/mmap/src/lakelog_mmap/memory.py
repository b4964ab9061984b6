"""What Python's ``mmap`` lacks or does holding the interpreter lock: ``mlock`` by ctypes."""

from __future__ import annotations

import mmap
import os


def lock(memory: mmap.mmap) -> None:
    """Keep ``memory`` out of swap; raises ``OSError``, mostly for ``RLIMIT_MEMLOCK``."""
    _call("mlock", memory)


def _call(name: str, memory: mmap.mmap) -> None:
    import ctypes  # takes longer to import than a store to open, and few lock memory

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
    """Write a zero into each page from ``position`` on; there is nothing else there yet."""
    first = -(-position // mmap.PAGESIZE) * mmap.PAGESIZE
    for at in range(first, len(memory), mmap.PAGESIZE):
        memory[at] = 0
