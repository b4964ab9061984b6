"""Runs workloads under the shim: one process that has imported everything, and a fork for each.

Reads jobs as JSON lines from standard input, and answers each by one JSON line. Jobs in which calls
fail need it to be started with the shim preloaded.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.faults.workload import WORKLOADS, as_line

_SPECIAL: Final = {"SHORT": -1, "KILL": -2}


def main() -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)  # noqa: T201  # that is the protocol


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Fork, arm the shim, work; what was told, and how the child ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _child(job, writing)
    os.close(writing)
    if job["kill_after_seconds"] is not None:
        time.sleep(job["kill_after_seconds"])
        os.kill(child, signal.SIGKILL)
    text, hung = _read(reading, job["patience_seconds"])
    if hung:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    events = [json.loads(each) for each in text.splitlines()]  # a line is written at once
    return {"events": events, "exit": os.waitstatus_to_exitcode(status), "hung": hung}


def _child(job: dict[str, Any], writing: int) -> None:
    code = 1
    try:
        fired = _armed(job)

        def tell(event: Any) -> None:
            os.write(writing, as_line({**event, "fired": fired()}))

        if job["file_limit_bytes"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_limit_bytes"], -1))
        WORKLOADS[job["workload"]](Path(job["path"]), job["settings"], job["run"], tell)
        tell({"ended": True})
        code = 0
    except BaseException:  # noqa: BLE001  # whatever it is, the test must hear of it
        word = "broken" if job["tolerates_break"] else "crashed"
        os.write(writing, as_line({word: traceback.format_exc(), "fired": 0}))
    finally:
        os._exit(code)


def _armed(job: dict[str, Any]) -> Callable[[], int]:
    """Let the fault of ``job`` strike, if it has one; says how often it has."""
    if job["call"] is None:
        return lambda: 0
    shim = ctypes.CDLL(None)
    error = _SPECIAL.get(job["error"]) or getattr(errno, job["error"])
    folder = os.fsencode(job["path"])
    shim.fault_arm(job["call"].encode(), error, job["nth"], job["forever"], folder)
    return lambda: int(shim.fault_fired())


def _read(reading: int, seconds: float) -> tuple[str, bool]:
    """All that the child writes until it ends, and whether it took too long."""
    found, until = bytearray(), time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return found.decode(), True
        data = os.read(reading, 1 << 16)
        if not data:
            return found.decode(), False
        found += data


if __name__ == "__main__":
    main()
