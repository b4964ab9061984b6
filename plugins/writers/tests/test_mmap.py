"""The writer ``mmap`` fulfils the contract of writers, with and without warming and locking."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lakelog_testing import WriterContract
from lakelog_writers.mapped import MmapWriter
from lakelog_writers.settings import MmapSettings

pytestmark = pytest.mark.both_ways


class TestMmapWriter(WriterContract):
    def make(self) -> MmapWriter:
        return MmapWriter(MmapSettings())


class TestWarmAndLocked(WriterContract):
    def make(self) -> MmapWriter:
        return MmapWriter(MmapSettings(warm=True, lock_memory=True))


def test_memory_that_may_not_be_locked_is_an_error() -> None:
    """In a separate process, without privileges and without lockable memory."""
    code = """
import mmap, os, resource
from lakelog_writers import buffers
region = mmap.mmap(-1, mmap.PAGESIZE)
buffers.mlock(region)
region.close()
region = mmap.mmap(-1, mmap.PAGESIZE)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
if os.geteuid() == 0:
    os.setuid(65534)
try:
    buffers.mlock(region)
except OSError as error:
    print("refused:", error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("refused:")
    assert "mlock of 4096 bytes" in run.stdout
