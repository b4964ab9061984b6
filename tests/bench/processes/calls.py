"""The cost of an owner: its system calls per message, by strace, and memory and CPU while idle."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

import lakelog
from tests.bench.durable.work import Work
from tests.bench.model import CannotRunError, Sample
from tests.bench.processes.owner import ATTACHED, cpu_seconds, family, producers, serving
from tests.bench.running import go, line_of
from tests.processes.words import STORE

NEEDED: Final = "strace"
_START_SECONDS: Final = 10.0
_SETTLING_SECONDS: Final = 3.0


def calls(settings: str, works: Sequence[Work], seconds: float, folder: Path) -> Sample:
    """Count for ``seconds``, in the middle of the producers' work.

    Counts the calls of all threads of the owner, but not those of its services in other processes.
    """
    if shutil.which(NEEDED) is None:
        raise CannotRunError(f"{NEEDED} is not installed")
    with serving(folder, settings) as owner, producers(folder / STORE, works) as processes:
        go(processes)
        time.sleep(works[0].seconds / 4)
        counted, messages = _traced(folder, owner.pid, seconds)
        for process in processes:
            line_of(process)
        go(processes)
    total = sum(counted.values())
    return {
        "calls_message": total / max(messages, 1),
        "calls_s": total / seconds,
        "rows_s": messages / seconds,
    }


def _traced(folder: Path, pid: int, seconds: float) -> tuple[Mapping[str, int], int]:
    """Return system calls by name, and the number of messages appended meanwhile."""
    with lakelog.open(folder / STORE, mode="read") as store:
        report = folder / "strace"
        command = [NEEDED, "-f", "-c", "-U", "name,calls", "-o", str(report), "-p", str(pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr is not None
            line = tracer.stderr.readline()
            if "attached" not in line:
                raise CannotRunError(line.strip())
            before = store.max_offset
            time.sleep(seconds)
            after = store.max_offset
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=_START_SECONDS)
        size = next(store.scan()).size
    # Lines that name a call; the last one is the sum.
    rows = (line.split() for line in report.read_text().splitlines())
    pairs = (row for row in rows if len(row) == 2 and row[1].isdigit())
    found = {name: int(count) for name, count in pairs if name != "total"}
    return found, (after - before) // size


def idle(settings: str, count: int, seconds: float, folder: Path) -> Sample:
    """Measure an owner for ``seconds``, beside ``count`` producers that put nothing.

    Memory has each shared page divided by the number of its processes (PSS).
    """
    works = [Work(0.0, options=ATTACHED)] * count
    with serving(folder, settings) as owner, producers(folder / STORE, works) as processes:
        time.sleep(min(_SETTLING_SECONDS, seconds))
        before = cpu_seconds(owner)
        time.sleep(seconds)
        used, memory = cpu_seconds(owner) - before, 0.0
        found = family(owner)
        for each in found:
            with suppress(psutil.NoSuchProcess):
                memory += each.memory_full_info().pss
        for process in processes:
            process.kill()
    return {
        "cpu_percent": used / seconds * 100,
        "pss_mib": memory / (1 << 20),
        "processes": len(found),
    }
