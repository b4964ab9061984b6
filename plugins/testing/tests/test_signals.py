"""A held process has stopped when the call returns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lakelog_testing.signals import hold
from plugins.daemon.tests.support import is_there

BUSY = """
import threading
threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
print("busy", flush=True)
while True:
    pass
"""


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"busy\n"
        yield process
        process.kill()


def states(pid: int) -> set[str]:
    found = set[str]()
    for each in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{each}/stat") as stat:
            found.add(stat.read().rpartition(")")[2].split()[0])
    return found


def test_all_threads_have_stopped(busy: subprocess.Popen[bytes]) -> None:
    for _ in range(50):
        hold(busy.pid)
        assert states(busy.pid) == {"T"}
        os.kill(busy.pid, signal.SIGCONT)


def test_one_that_has_ended_is_no_error(busy: subprocess.Popen[bytes]) -> None:
    busy.kill()
    while is_there(busy.pid):
        pass
    hold(busy.pid)
    busy.wait()
    with pytest.raises(ProcessLookupError):
        hold(busy.pid)
