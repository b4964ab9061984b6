"""A process without standard streams: no file of a store gets the number of one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
import lakelog

def told():
    return [os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)]

with lakelog.open(sys.argv[1], segment_size_bytes="64KiB", preallocate=False) as store:
    store.put(lakelog.Message("t", b"x"))
    owner = told()
    reader = lakelog.open(sys.argv[1], mode="read")
    os.write(2, b"what is said here is lost")
    assert [bytes(each.body) for each in reader.scan()] == [b"x"]
    reader.close()
    with open(sys.argv[2], "w") as out:
        out.write(" ".join(owner))
"""


def test_files_of_a_store_take_no_place_of_a_standard_stream(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(tmp_path / "out")]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
    assert subprocess.run(closed, timeout=60, check=False).returncode == 0
    assert (tmp_path / "out").read_text() == "/dev/null /dev/null /dev/null"
