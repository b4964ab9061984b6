"""Runs workloads under the shim: one process that has imported everything, and a fork for each.

Reads jobs as JSON lines from standard input, and answers each by one JSON line. Jobs in which calls
fail need it to be started with the shim preloaded.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.faults.jobs import WORKLOADS
from tests.faults.workload import Tell, threads

_PR_SET_PDEATHSIG: Final = 1
_LEFT_SECONDS: Final = 10.0
"""A thread that only logs may still be ending; nothing else takes any time."""
_PAUSE_SECONDS: Final = 0.01


def main() -> None:
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

    tell = Tell(os.open(os.devnull, os.O_WRONLY))
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


def _child(job: dict[str, Any], writing: int) -> None:
    code = 1
    _end_with_parent()
    # The import system keeps a short write as a compiled module, and later runs fail on it.
    sys.dont_write_bytecode = True
    tell = Tell(writing, None if job["call"] is None else ctypes.CDLL(None), job)
    threads()
    before = _held(job["path"])
    try:
        threading.excepthook = lambda hook: tell({"crashed": _traceback(hook.exc_value)})
        if job["file_limit_bytes"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["file_limit_bytes"], -1))
        if not job["late"]:
            tell.arm()
        WORKLOADS[job["workload"]](Path(job["path"]), job["settings"], job["run"], tell)
        left = _left_of(job["path"], before)
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


# --- what a process still holds of a store that it has closed, or could not open ---


def _held(path: str) -> set[str]:
    """Threads, descriptors, and maps of files below ``path``; locks are held by descriptors."""
    return {*_threads(), *_descriptors(), *_maps(path)}


def _left_of(path: str, before: set[str]) -> list[str]:
    """What is held now and was not ``before``, once nothing changes any more."""
    until = time.monotonic() + _LEFT_SECONDS
    while True:
        gc.collect()
        left = _held(path) - before
        if not left or time.monotonic() > until:
            return sorted(left)
        time.sleep(_PAUSE_SECONDS)


def _threads() -> Iterator[str]:
    for task in Path("/proc/self/task").iterdir():
        yield f"thread {task.name}"


def _descriptors() -> Iterator[str]:
    with os.scandir("/proc/self/fd") as found:
        for each in found:
            try:
                target = os.readlink(each.path)
            except FileNotFoundError:  # the one that lists them
                continue
            if not target.startswith("/proc/"):
                yield f"descriptor {each.name} of {target}"


def _maps(path: str) -> Iterator[str]:
    with Path("/proc/self/maps").open() as lines:
        for line in lines:
            if path in line:
                yield f"map of {line[line.index(path) :].strip()}"


if __name__ == "__main__":
    main()
