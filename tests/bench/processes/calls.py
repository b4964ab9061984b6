"""Counts the system calls of an owner per message, by strace, while producers put."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import lakelog
from tests.bench.durable.work import Work
from tests.bench.model import CannotRunError, Sample
from tests.bench.processes.owner import go, line_of, producers, serving
from tests.processes.words import STORE

NEEDED: Final = "strace"
_START_SECONDS: Final = 10.0


def calls(settings: str, works: Sequence[Work], seconds: float, folder: Path) -> Sample:
    """Count for ``seconds``, in the middle of the producers' work.

    Counts the calls of all threads of the owner, but not those of its services in other processes.
    """
    if shutil.which(NEEDED) is None:
        raise CannotRunError(f"{NEEDED} is not installed")
    with serving(folder, settings) as owner, producers(folder / STORE, works) as processes:
        go(processes)
        time.sleep(works[0].seconds / 4)
        counted, messages = traced(folder, owner.pid, seconds)
        for process in processes:
            line_of(process)
        go(processes)
    total = sum(counted.values())
    return {
        "calls_message": total / max(messages, 1),
        "calls_s": total / seconds,
        "rows_s": messages / seconds,
    }


def traced(folder: Path, pid: int, seconds: float) -> tuple[Mapping[str, int], int]:
    """Return system calls by name, and the number of messages appended meanwhile."""
    with lakelog.open(folder / STORE, mode="read") as store:
        report = folder / "strace"
        command = [NEEDED, "-f", "-c", "-U", "name,calls", "-o", str(report), "-p", str(pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            _await_attached(tracer)
            before = store.max_offset
            time.sleep(seconds)
            after = store.max_offset
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=_START_SECONDS)
        size = next(store.scan()).size
    return _counts(report.read_text()), (after - before) // size


def _await_attached(tracer: subprocess.Popen[str]) -> None:
    assert tracer.stderr is not None
    line = tracer.stderr.readline()
    if "attached" not in line:
        raise CannotRunError(line.strip())


def _counts(table: str) -> dict[str, int]:
    """Parse the lines of ``strace -c`` that name a call; the last one is the sum."""
    rows = (line.split() for line in table.splitlines())
    pairs = (row for row in rows if len(row) == len(("name", "calls")) and row[1].isdigit())
    return {name: int(calls) for name, calls in pairs if name != "total"}
