"""One run of one store in a separate process; prints its figures as JSON.

The time of a call is from the construction of its message to its return, that of a future to its
result.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench import content, durable
from tests.bench.durable.work import Driver, Work, figures
from tests.bench.model import CannotRunError, Sample

WARM_UP_SHARE = 4


def spawn(name: str, work: Work, directory: Path) -> Sample:
    """Run in a new process and wait for its figures."""
    command = [sys.executable, "-m", __name__, name, str(directory), json.dumps(asdict(work))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRunError((done.stderr.strip() or f"died: {done.returncode}").splitlines()[-1])
    sample: Sample = json.loads(done.stdout)
    return sample


def run(driver: Driver, work: Work, directory: Path) -> Sample:
    """Warm up, then measure."""
    driver.open(directory, work.options)
    measure(driver, work, work.seconds / WARM_UP_SHARE)
    sample = measure(driver, work, work.seconds)
    driver.close()
    return sample


def measure(driver: Driver, work: Work, seconds: float) -> Sample:
    """Put for ``seconds``, and measure."""
    body = content.body(work.body_bytes)
    start = time.perf_counter()
    if work.in_flight:
        took = _futures(driver, body, work.in_flight, seconds)
    else:
        took = _threads(_call(driver, work, body), work.threads, seconds)
    return figures(len(took), work.batch_size, time.perf_counter() - start, took)


def _call(driver: Driver, work: Work, body: bytes) -> Callable[[], object]:
    if work.columns:
        put_columns: Callable[[int, bytes], object] = driver.put_columns  # type: ignore[attr-defined]  # lakelog's alone
        return lambda: put_columns(work.batch_size, body)
    if work.batch_size > 1:
        return lambda: driver.put_batch(work.batch_size, body)
    return lambda: driver.put(body)


def _threads(call: Callable[[], object], threads: int, seconds: float) -> list[int]:
    def until(deadline: float) -> list[int]:
        took, clock = list[int](), time.perf_counter_ns
        while not took or time.perf_counter() < deadline:
            before = clock()
            call()
            took.append(clock() - before)
        return took

    with ThreadPoolExecutor(threads) as pool:
        each = pool.map(until, [time.perf_counter() + seconds] * threads)
    return [one for took in each for one in took]


def _futures(driver: Any, body: bytes, in_flight: int, seconds: float) -> list[int]:
    """Keep ``in_flight`` puts pending: the next begins when the oldest has its result."""
    took: list[int] = []
    waiting: deque[Future[object]] = deque()
    clock, deadline = time.perf_counter_ns, time.perf_counter() + seconds
    while not waiting or time.perf_counter() < deadline:
        if len(waiting) == in_flight:
            waiting.popleft().result()
        before = clock()
        future = driver.put_async(body)
        future.add_done_callback(lambda _, before=before: took.append(clock() - before))
        waiting.append(future)
    for future in waiting:
        future.result()
    return took


def _main(name: str, directory: str, work: str) -> None:
    print(json.dumps(run(durable.module(name).Peer(), Work(**json.loads(work)), Path(directory))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
