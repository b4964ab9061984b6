"""Which messages remain in a store whose process was killed, and what did the recovery do?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

import lakelog

PUT_UNTIL_KILLED = """
import sys, lakelog
store = lakelog.open(sys.argv[1], segment_size_bytes="1MiB", flush="group-commit")
for number in range(1_000_000):
    store.put(lakelog.Message("orders", b"order %d" % number, queue_id=0, keys=str(number)))
    print(number, flush=True)  # it is durable by now: say so
"""


def put_and_kill(path: str) -> int:
    """Put in a separate process, and kill it; return the last number that was acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-c", PUT_UNTIL_KILLED, path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 200:
            os.kill(process.pid, signal.SIGKILL)
            break
    rest = process.stdout.read().split()
    process.wait()
    return int(rest[-1]) if rest else 200


def main(folder: str) -> None:
    """Open the store of the killed process, which recovers it."""
    acknowledged = put_and_kill(folder)
    with lakelog.open(folder, flush="group-commit") as store:
        report = store.recovery
        assert report is not None
        print("closed cleanly before:", report.clean)
        print(f"read from offset {report.start_offset}: {report.start_reason}")
        print("cut from the end:", len(report.cut), "- damaged:", len(report.damage))
        found = {bytes(message.body) for message in store.scan()}
        lost = [at for at in range(acknowledged + 1) if b"order %d" % at not in found]
        print(f"acknowledged: {acknowledged + 1}, lost: {len(lost)}")
        assert not lost


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(f"{temporary}/store")
