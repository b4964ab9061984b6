"""The load on a store, measured in a separate process, which prints its figures as JSON.

``python -m tests.bench.durable.work PEER DIRECTORY WORK``. With a further word, it is one of
several producers: it is ready, waits for a line, measures, prints, and waits for a line.

The time of a call is from the construction of its message to its return, that of a future to its
result.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.bench import content, running
from tests.bench.model import Column, Sample

BODY_BYTES: Final = 1024
_WARM_UP_SHARE: Final = 4
COLUMNS: Final = (
    Column("rows_s", "messages/s"),
    Column("p50_us", "p50 us"),
    Column("p99_us", "p99 us"),
)

Options: TypeAlias = Mapping[str, Any]
"""Options of a store; JSON."""


@dataclass(frozen=True)
class Work:
    """Calls, one after another in each thread, until the time is over.

    :ivar seconds: duration of the measurement; a warm-up of a quarter of it comes before
    :ivar in_flight: number of pending futures in one thread, instead of waiting calls
    :ivar batch_size: messages per call
    :ivar columns: whether a batch is passed as columns
    """

    seconds: float
    threads: int = 1
    in_flight: int = 0
    batch_size: int = 1
    columns: bool = False
    body_bytes: int = BODY_BYTES
    options: Options = field(default_factory=dict)


def command(name: str, directory: Path, work: Work, *more: str) -> list[str]:
    """Return the command of the process that measures."""
    return running.python(__name__, name, directory, json.dumps(asdict(work)), *more)


def spawn(name: str, work: Work, directory: Path) -> Sample:
    """Run in a new process and wait for its figures."""
    from tests.bench.durable.peers import peer

    peer(name)  # if its package is missing, that is what is told
    return running.sample(command(name, directory, work))


def measure(store: Any, work: Work, seconds: float) -> Sample:
    """Put for ``seconds``, and measure."""
    body, start = content.body(work.body_bytes), time.perf_counter()
    if work.in_flight:
        took = _futures(store.put_async, body, work.in_flight, seconds)
    else:
        took = _threads(_call(store, work, body), work.threads, seconds)
    return figures(took, work, time.perf_counter() - start)


def figures(took_ns: list[int], work: Work, seconds: float) -> Sample:
    """Return a sample from the measured times; sorts ``took_ns``."""
    took_ns.sort()
    rows = len(took_ns) * work.batch_size
    return {
        "rows_s": rows / seconds,
        "mb_s": rows * work.body_bytes / seconds / 1e6,
        "p50_us": took_ns[len(took_ns) // 2] / 1e3,
        "p99_us": took_ns[len(took_ns) * 99 // 100] / 1e3,
        "max_us": took_ns[-1] / 1e3,
    }


def _call(store: Any, work: Work, body: bytes) -> Callable[[], object]:
    put, put_batch, size = store.put, store.put_batch, work.batch_size
    if work.columns:
        put_batch = store.put_columns
    return partial(put, body) if size == 1 else partial(put_batch, size, body)


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


def _futures(
    put: Callable[[bytes], Future[Any]], body: bytes, in_flight: int, seconds: float
) -> list[int]:
    """Keep ``in_flight`` puts pending: the next begins when the oldest has its result."""
    took: list[int] = []
    waiting: deque[Future[object]] = deque()
    clock, deadline = time.perf_counter_ns, time.perf_counter() + seconds

    def note(before: int, _future: Future[object]) -> None:
        took.append(clock() - before)

    while not waiting or time.perf_counter() < deadline:
        if len(waiting) == in_flight:
            waiting.popleft().result()
        before = clock()
        future = put(body)
        future.add_done_callback(partial(note, before))
        waiting.append(future)
    for future in waiting:
        future.result()
    return took


def main(name: str, directory: str, given: str, *beside: str) -> None:
    """Warm up, measure, and print the figures."""
    from tests.bench.durable.peers import peer

    work, store = Work(**json.loads(given)), peer(name)
    store.open(Path(directory), work.options)
    if beside:
        print(running.READY, flush=True)
        sys.stdin.readline()
    measure(store, work, work.seconds / _WARM_UP_SHARE)
    print(json.dumps(measure(store, work, work.seconds)), flush=True)
    if beside:
        sys.stdin.readline()  # others still measure; an early close would make them faster
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
