"""Puts from several threads at a steady rate while every sync is slow; prints the put latencies.

strace runs this module, and delays the syncs (`command`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import lakelog
from tests.bench.content import body
from tests.bench.durable.work import BODY_BYTES, figures
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
    store = directory / "store"
    done = subprocess.run(
        [*command(trace, delay_ms), str(store), str(seconds), json.dumps(options)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CannotRunError((done.stderr.strip() or f"died: {done.returncode}").splitlines()[-1])
    calls = trace.read_text(errors="replace").count("(DELAYED)")
    sample: dict[str, float] = json.loads(done.stdout)
    return {**sample, "syncs": calls}


def command(trace: Path, delay_ms: int) -> list[str]:
    """Return the command that runs this module with delayed syncs."""
    inject = f"inject={_SYNCS}:delay_enter={delay_ms * 1000}"
    strace = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", str(trace)]
    return [*strace, "-e", f"trace={_SYNCS}", "-e", inject, sys.executable, "-m", __name__]


def main(directory: str, seconds: str, options: str) -> None:
    """Measure puts that wait for no sync; optionally one thread puts and waits for syncs."""
    settings = json.loads(options)
    syncer = settings.pop("syncer", False)
    with lakelog.open(directory, **settings) as store:
        deadline = time.perf_counter() + float(seconds)
        with ThreadPoolExecutor(_THREADS + 1) as pool:
            synced = pool.submit(_wait_for_syncs, store, deadline) if syncer else None
            each = list(pool.map(lambda _: _put(store, deadline), range(_THREADS)))
    took = [one for part in each for one in part]
    waited_us = max(synced.result()) / 1e3 if synced else 0.0
    print(json.dumps({**figures(len(took), 1, float(seconds), took), "waited_us": waited_us}))


def _put(store: lakelog.Store, deadline: float) -> list[int]:
    content, took, clock = body(BODY_BYTES), list[int](), time.perf_counter_ns
    while not took or time.perf_counter() < deadline:
        before = clock()
        store.put(lakelog.Message("bench", content, queue_id=0, wait_store_ok=False))
        took.append(clock() - before)
        time.sleep(_PAUSE_SECONDS)
    return took


def _wait_for_syncs(store: lakelog.Store, deadline: float) -> list[int]:
    took, clock = list[int](), time.perf_counter_ns
    while not took or time.perf_counter() < deadline:
        before = clock()
        store.put(lakelog.Message("bench", b"waits", queue_id=1))
        took.append(clock() - before)
    return took


if __name__ == "__main__":
    main(*sys.argv[1:])
