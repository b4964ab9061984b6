"""A killed process loses nothing that was acknowledged."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lakelog

PUTS = """
import sys
import lakelog
from lakelog import Message
path, writer = sys.argv[1:]
section = {writer: {"commit_interval_ms": 3_600_000}}
if writer == "direct":
    section["direct"] |= {"buffer_bytes": 4096, "buffers": 2}
store = lakelog.open(
    path, writer=writer, flush="group-commit", segment_size_bytes="64KiB", **section
)
for number in range(1_000_000):
    body = b"%06d" % number * (1 + number % 300)
    store.put(Message("orders", body, wait_store_ok=number % 5 == 0))
    if number % 5 == 0:
        print(number, flush=True)
"""


@pytest.mark.parametrize("writer", ["staged", "direct"])
def test_a_kill_loses_nothing_that_was_waited_for(tmp_path: Path, writer: str) -> None:
    command = [sys.executable, "-c", PUTS, str(tmp_path), writer]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = -1
        for line in process.stdout:
            last = int(line)
            if last == 500:
                process.send_signal(signal.SIGKILL)
    assert last >= 500
    with lakelog.open(tmp_path, writer=writer, segment_size_bytes="64KiB") as store:
        found = [bytes(message.body) for message in store.scan()]
        assert found == [b"%06d" % at * (1 + at % 300) for at in range(len(found))]
        assert len(found) > last
        assert store.recovery is not None
        assert not store.recovery.clean
