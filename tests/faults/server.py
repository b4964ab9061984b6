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
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from tests.faults.jobs import WORKLOADS
from tests.faults.leftovers import held, left_of
from tests.faults.workload import threads

_SPECIAL: Final = {"SHORT": -1, "KILL": -2, "SLOW": -3}
_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Serve until the input ends."""
    _end_with_parent()
    _import_all()
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)  # noqa: T201  # that is the protocol


def _end_with_parent() -> None:
    """Nobody is left behind where a test run is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _import_all() -> None:
    """What a store imports when it needs it, so that no fork has to."""
    import tempfile

    def ignore(_event: Mapping[str, Any]) -> None: ...

    tell: Any = ignore
    tell.struck_log = lambda: 0
    with tempfile.TemporaryDirectory() as folder:
        for writer, flush in (("file", "group-commit"), ("mmap", "timed"), ("staged", "inline")):
            settings = {"writer": writer, "flush": flush}
            for job in ("all", "read", "recover", "repair"):
                WORKLOADS[job](Path(folder, writer), settings, "x", tell)
        for job in ("house", "loop"):
            WORKLOADS[job](Path(folder, job), {"writer": "file", "flush": "timed"}, "x", tell)
    threads().shutdown()  # those of a process that was forked from this one are its own
    threads.cache_clear()


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Fork, arm the shim, work; what was told, and how the child ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _child(job, writing)
    os.close(writing)
    killer = None
    if job["kill_after_seconds"] is not None:
        killer = threading.Timer(job["kill_after_seconds"], os.kill, (child, signal.SIGKILL))
        killer.start()
    text, hung = _read(reading, child, job)
    if killer is not None:
        killer.cancel()
        killer.join()
    if hung:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    events = [json.loads(each) for each in text.splitlines(keepends=True) if each[-1] == "\n"]
    return {"events": events, "exit": os.waitstatus_to_exitcode(status), "hung": hung}


@attrs.define
class _Teller:
    """Writes events to a pipe, with how often the fault has struck.

    One event is one write, so that lines of threads do not mix.
    """

    writing: int
    shim: ctypes.CDLL | None
    job: dict[str, Any] = attrs.field(factory=dict)

    def arm(self) -> None:
        """Let the fault strike from now on, and count calls from now on."""
        if self.shim is not None:
            _arm(self.shim, self.job)

    def disarm(self) -> None:
        if self.shim is not None:
            _arm(self.shim, {**self.job, "call": "none"})

    def __call__(self, event: Mapping[str, Any]) -> None:
        fired = self.shim.fault_fired() if self.shim is not None else 0
        os.write(self.writing, json.dumps({**event, "fired": fired}).encode() + b"\n")

    def struck_log(self) -> int:
        return int(self.shim.fault_fired_at_log()) if self.shim is not None else 0

    def seen(self) -> int:
        return int(self.shim.fault_seen()) if self.shim is not None else 0


def _child(job: dict[str, Any], writing: int) -> None:
    code = 1
    _end_with_parent()
    # The import system keeps a short write as a compiled module, and later runs fail on it.
    sys.dont_write_bytecode = True
    tell = _Teller(writing, None if job["call"] is None else ctypes.CDLL(None))
    threads()
    before = held(job["path"])
    try:
        threading.excepthook = lambda hook: tell({"crashed": _traceback(hook.exc_value)})
        if job["file_limit_bytes"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_limit_bytes"], -1))
        tell.job = job
        if not job["late"]:
            tell.arm()
        WORKLOADS[job["workload"]](Path(job["path"]), job["settings"], job["run"], tell)
        left = left_of(job["path"], before)
        if left:
            tell({"left": left})
        tell({"ended": True, "calls": tell.seen()})
        code = 0
    except BaseException as error:  # noqa: BLE001  # any error goes to the test
        tell({"broken" if job["tolerates_break"] else "crashed": _traceback(error)})
    finally:
        os._exit(code)


def _traceback(error: BaseException | None) -> str:
    return "".join(traceback.format_exception(error)) if error is not None else "no error"


def _arm(shim: ctypes.CDLL, job: dict[str, Any]) -> None:
    """Let the fault of ``job`` strike."""
    error = _SPECIAL.get(job["error"]) or getattr(errno, job["error"])
    folder = os.fsencode(os.path.normpath(Path(job["path"], job["below"])))
    shim.fault_arm(job["call"].encode(), error, job["nth"], job["forever"], folder)


def _read(reading: int, child: int, job: Mapping[str, Any]) -> tuple[str, bool]:
    """All that the child writes until it ends, and whether it took too long."""
    found, until = bytearray(), time.monotonic() + job["patience_seconds"]
    left = job["kill_after_events"]
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return found.decode(), True
        data = os.read(reading, 1 << 16)
        if not data:
            return found.decode(), False
        found += data
        if left is not None and (left := left - data.count(b"\n")) <= 0:
            os.kill(child, signal.SIGKILL)
            left = None


if __name__ == "__main__":
    main()
