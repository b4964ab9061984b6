"""Puts from several threads at a steady rate while every sync is slow; prints the put latencies.

strace runs this module, and delays the syncs.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import lakelog
from tests.bench import running
from tests.bench.content import body
from tests.bench.durable.work import BODY_BYTES, Work, figures
from tests.bench.model import CannotRunError, Sample

DELAY_MS: Final = 300
_THREADS: Final = 2
_PAUSE_SECONDS: Final = 0.001
_SYNCS: Final = "fdatasync,fsync,msync,sync_file_range"


def spawn(
    seconds: float, options: dict[str, Any], directory: Path, delay_ms: int = DELAY_MS
) -> Sample:
    """Run under strace; raises CannotRunError if strace is missing or not permitted."""
    if shutil.which("strace") is None:
        raise CannotRunError("strace is not installed")
    trace = directory / "trace"
    strace = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", str(trace), "-e", f"trace={_SYNCS}"]
    inject = f"inject={_SYNCS}:delay_enter={delay_ms * 1000}"
    command = running.python(__name__, directory / "store", seconds, json.dumps(options))
    sample = running.sample([*strace, "-e", inject, *command])
    return {**sample, "syncs": trace.read_text(errors="replace").count("(DELAYED)")}


def main(directory: str, seconds: str, options: str) -> None:
    """Measure puts that wait for no sync; optionally one thread puts and waits for syncs."""
    settings = json.loads(options)
    syncer = settings.pop("syncer", False)
    content = body(BODY_BYTES)
    with lakelog.open(directory, **settings) as store:

        def put() -> None:
            store.put(lakelog.Message("bench", content, queue_id=0, wait_store_ok=False))

        def wait_for_a_sync() -> None:
            store.put(lakelog.Message("bench", b"waits", queue_id=1))

        deadline = time.perf_counter() + float(seconds)
        with ThreadPoolExecutor(_THREADS + 1) as pool:
            synced = pool.submit(_took, wait_for_a_sync, deadline, 0) if syncer else None
            each = [pool.submit(_took, put, deadline, _PAUSE_SECONDS) for _ in range(_THREADS)]
    took = [one for part in each for one in part.result()]
    waited_us = max(synced.result()) / 1e3 if synced else 0.0
    found = figures(took, Work(float(seconds)), float(seconds))
    print(json.dumps({**found, "waited_us": waited_us}))


def _took(call: Callable[[], None], deadline: float, pause: float) -> list[int]:
    took, clock = list[int](), time.perf_counter_ns
    while not took or time.perf_counter() < deadline:
        before = clock()
        call()
        took.append(clock() - before)
        if pause:
            time.sleep(pause)
    return took


if __name__ == "__main__":
    main(*sys.argv[1:])
