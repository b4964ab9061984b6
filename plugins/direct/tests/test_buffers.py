"""Buffers are reused, but never while views of them exist."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from lakelog_direct.buffers import BufferPool


def test_a_buffer_is_used_again_once_nobody_looks_at_it() -> None:
    pool = BufferPool(4096, limit=1)
    loan = pool.take(0)
    buffer, part = loan.buffer, loan.view[10:20]
    buffer.memory[10:20], buffer.used_bytes = b"0123456789", 20
    del loan
    with pytest.raises(OSError, match="all 1 buffers of 4096 bytes"):
        pool.take(0.01)
    assert bytes(part) == b"0123456789"
    del part
    again = pool.take(0)
    assert again.buffer is buffer
    assert bytes(again.view) == bytes(4096)


def test_arrays_over_a_view_keep_it_too() -> None:
    pool = BufferPool(4096, limit=1)
    array = np.frombuffer(pool.take(0).view[4:8], np.uint8)
    with pytest.raises(OSError, match="waited"):
        pool.take(0.01)
    del array
    pool.take(0)


def test_memory_that_may_not_be_locked_is_an_error() -> None:
    """In a separate process, without privileges and without lockable memory."""
    code = """
import os, resource
from lakelog_direct.buffers import BufferPool
BufferPool(4096, limit=2, lock=True).fill()
resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
if os.geteuid() == 0:
    os.setuid(65534)
try:
    BufferPool(4096, limit=2, lock=True).fill()
except OSError as error:
    print("refused:", error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "mlock of a buffer of 4096 bytes" in run.stdout
    assert "RLIMIT_MEMLOCK" in run.stdout
