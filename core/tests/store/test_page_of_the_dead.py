"""What outlives an owner does not make its positions page believed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from core.tests.store.support import SEGMENT
from lakelog.files import RealFileSystem
from lakelog.ownership import is_published
from lakelog.pages.belief import Belief

FILES = RealFileSystem()


def test_a_forked_childs_hold_on_the_lock_is_no_life(tmp_path: Path) -> None:
    """A child that C code forked keeps the lock, which so outlives the owner; its page does not."""
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
        assert Belief(FILES, tmp_path).page() is None
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)
