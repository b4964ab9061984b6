"""Measures an idle ``lakelog serve``: CPU time, and memory with shared pages counted once (PSS)."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from tests.bench.durable.work import Work
from tests.bench.model import Sample
from tests.bench.processes.owner import ATTACHED, cpu_seconds, family, producers, serving
from tests.processes.words import STORE

_SETTLING_SECONDS: Final = 3.0


def idle(settings: str, count: int, seconds: float, folder: Path) -> Sample:
    """Measure for ``seconds``, beside ``count`` producers that put nothing."""
    works = [Work(0.0, options=ATTACHED)] * count
    with serving(folder, settings) as owner, producers(folder / STORE, works) as processes:
        time.sleep(min(_SETTLING_SECONDS, seconds))
        before = cpu_seconds(owner)
        time.sleep(seconds)
        used = cpu_seconds(owner) - before
        found = family(owner)
        sample = {
            "cpu_percent": used / seconds * 100,
            "pss_mib": sum(pss_bytes(each) for each in found) / (1 << 20),
            "processes": len(found),
        }
        for process in processes:
            process.kill()
    return sample


def pss_bytes(process: psutil.Process) -> float:
    """Return the PSS: memory with each shared page divided by the number of its processes."""
    with suppress(psutil.NoSuchProcess):
        return float(process.memory_full_info().pss)
    return 0.0
