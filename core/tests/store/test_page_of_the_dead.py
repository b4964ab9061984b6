"""A child that C code forked keeps the locks of its parent, and so outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from core.tests.store.support import SEGMENT
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.pages.page_reader import PageReader
from lakelog.files.shared.ownership import is_published

FILES = RealFileSystem()


def test_the_page_of_a_dead_process_whose_locks_a_child_holds_is_right(tmp_path: Path) -> None:
    """The page is right all the same."""
    code = (
        "import ctypes, lakelog, os, sys, time\n"
        "store = lakelog.open(sys.argv[1], plugins=[], flush='none', preallocate=False,\n"
        f"                     segment_size_bytes={SEGMENT})\n"
        "store.put(lakelog.Message('t', b'x'))\n"
        "sys.setswitchinterval(60); time.sleep(0.2)  # the child has no thread to switch to\n"
        "child = ctypes.PyDLL(None).fork()\n"
        "if child == 0: os.close(1); time.sleep(60)\n"
        "print(child, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=30)
    try:
        assert is_published(FILES, tmp_path)
        assert PageReader(FILES, tmp_path).page() is not None
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)
