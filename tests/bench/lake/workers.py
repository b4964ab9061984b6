"""CPU time and memory of a job's processes: its own, and all that it has started."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

_PEAK: Final = "VmHWM:"


def cpu_seconds() -> float:
    """Return the CPU seconds of all live processes, user and system; includes a JVM's compiler."""
    total = 0.0
    for each in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system
    return total


def largest() -> dict[str, float]:
    """Return the peak memory of the largest Python child process, in MB; empty without one."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            if each.name().startswith("python"):
                found.append(_peak_mb(each.pid))
    return {"worker_mb": max(found)} if found else {}


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    peak = next((each for each in lines if each.startswith(_PEAK)), f"{_PEAK} 0 kB")
    return int(peak.split()[1]) * 1024 / 1e6
