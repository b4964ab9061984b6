"""The work of lakelog in the suite `find`, in a separate process; prints its figures as JSON."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import lakelog
from lakelog import Message, Store
from lakelog.dispatch.run import DispatchCursor, resume
from lakelog.files.filesystem import RealFileSystem
from lakelog.interfaces import Context
from lakelog.registry import Registry
from lakelog.store.strategies import make_dispatchers
from tests.bench.content import QUEUES, TAGS, TOPIC, body, key
from tests.bench.model import CannotRunError, Sample

_BATCH: Final = 4096
_AT_ONCE: Final = 32
_COLUMNS_AT_ONCE: Final = 4096
_CHEAP: Final = ("queue_offset", "physical_offset", "store_timestamp", "tags", "body")


@dataclass(frozen=True)
class Work:
    """One kind of work, and the function that measures it."""

    about: str
    measure: Callable[[Path, int, bytes], Sample]


def spawn(work: str, count: int, body_bytes: int, directory: Path) -> Sample:
    """Run in a new process and wait for its figures."""
    command = [sys.executable, "-m", __name__, work, str(count), str(body_bytes), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotRunError((done.stderr.strip() or "died").splitlines()[-1])
    figures: Sample = json.loads(done.stdout)
    return figures


def _open(directory: Path, **more: Any) -> Store:
    return lakelog.open(directory, segment_size_bytes=1 << 30, flush="none", **more)


def _write(directory: Path, count: int, content: bytes, **more: Any) -> None:
    with _open(directory, **more) as store:
        for first in range(0, count, _BATCH):
            store.put_batch(
                [
                    Message(TOPIC, content, tags=TAGS, keys=key(at), queue_id=at % QUEUES)
                    for at in range(first, min(first + _BATCH, count))
                ]
            )
        if not more:
            store.wait_dispatched(timeout_ms=600_000)


def _timed(count: int, work: Callable[[], object]) -> Sample:
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows_s": count / seconds, "peak_rss_mb": peak}


def _calls(count: int, call: Callable[[int], object]) -> Sample:
    """Warm up, then time every call."""
    for at in range(count // 10):
        call(at)
    took = []
    start = time.perf_counter()
    for at in range(count):
        before = time.perf_counter_ns()
        call(at)
        took.append(time.perf_counter_ns() - before)
    seconds = time.perf_counter() - start
    took.sort()
    return {
        "rows_s": count / seconds,
        "p50_us": took[count // 2] / 1e3,
        "p99_us": took[count * 99 // 100] / 1e3,
    }


def _dispatch(directory: Path, count: int, content: bytes) -> Sample:
    """Measure dispatching; as many records are dispatched before to warm up, as in the peer."""
    _write(directory, count, content, dispatchers=[])
    middle = _end(directory)
    _write(directory, count, content, dispatchers=[])
    end = _end(directory)
    registry = Registry.load(None, {})
    with lakelog.open(directory, mode="read", dispatchers=["auto"]) as store:
        context = Context(directory, store.settings.core, RealFileSystem())
        dispatchers = make_dispatchers(registry, store.settings, context)
        dispatching = DispatchCursor(directory, dispatchers, resume(dispatchers, 0, end))
        dispatching.run(store.scan_pieces(0, middle, verify=False))
        figures = _timed(
            count, lambda: dispatching.run(store.scan_pieces(middle, end, verify=False))
        )
        if dispatching.offset != end:
            raise CannotRunError("not everything was dispatched")
    for each in dispatchers:
        each.dispatcher.close()
    return figures


def _end(directory: Path) -> int:
    with _open(directory, dispatchers=[]) as store:
        return store.max_offset


def _read(get: Callable[[Store, int, int], int]) -> Callable[[Path, int, bytes], Sample]:
    def measure(directory: Path, count: int, content: bytes) -> Sample:
        _write(directory, count, content)
        with _open(directory) as store:

            def everything() -> None:
                for queue_id in range(QUEUES):
                    offset = 0
                    while offset < count // QUEUES:
                        offset = get(store, queue_id, offset)

            everything()
            return _timed(count // QUEUES * QUEUES, everything)

    return measure


def _get(store: Store, queue_id: int, offset: int) -> int:
    return store.get(TOPIC, queue_id, offset, _AT_ONCE).next_offset


def _get_columns(store: Store, queue_id: int, offset: int) -> int:
    found = store.get_columns(TOPIC, queue_id, offset, _COLUMNS_AT_ONCE, columns=_CHEAP)
    return found.next_offset


def _unchecked(store: Store, queue_id: int, offset: int) -> int:
    found = store.get_columns(
        TOPIC, queue_id, offset, _COLUMNS_AT_ONCE, columns=_CHEAP, verify=False
    )
    return found.next_offset


def _all_columns(store: Store, queue_id: int, offset: int) -> int:
    return store.get_columns(TOPIC, queue_id, offset, _COLUMNS_AT_ONCE).next_offset


def _query(directory: Path, count: int, content: bytes) -> Sample:
    _write(directory, count, content)
    chance, calls = random.Random(1), min(count, 20_000)
    keys = [key(chance.randrange(count)) for _ in range(calls)]  # not timed, as in the peer
    with _open(directory) as store:

        def call(at: int) -> None:
            if not store.query(TOPIC, keys[at]):
                raise CannotRunError("a key was not found")

        return _calls(calls, call)


def _bytime(directory: Path, count: int, content: bytes) -> Sample:
    _write(directory, count, content)
    chance = random.Random(1)
    with _open(directory) as store:
        first = store.earliest_time(TOPIC, 0) or 0
        span = max(1, time.time_ns() // 1_000_000 - first)

        def call(at: int) -> None:
            store.offset_by_time(TOPIC, at % QUEUES, first + chance.randrange(span))

        return _calls(min(count, 20_000), call)


def _latency(directory: Path, count: int, content: bytes) -> Sample:
    with _open(directory) as store:

        def call(at: int) -> None:
            put = store.put(Message(TOPIC, content, tags=TAGS, keys=key(at), queue_id=at % QUEUES))
            store.wait_dispatched(put.end_offset)

        return _calls(count, call)


WORK: Final[Mapping[str, Work]] = {
    "dispatch": Work("consume queues and hash index, from 1 GiB segments", _dispatch),
    "get": Work("get of 32 messages as StoredMessage", _read(_get)),
    "get_columns": Work(
        "get_columns of 4,096: five columns, bodies among them", _read(_get_columns)
    ),
    "unchecked": Work("the same without checksums, as the peer reads", _read(_unchecked)),
    "all_columns": Work("get_columns of 4,096: every column", _read(_all_columns)),
    "query": Work("query, topic and key checked again", _query),
    "bytime": Work("offset_by_time", _bytime),
    "latency": Work("put, then wait_dispatched", _latency),
}


def _main(work: str, count: str, body_bytes: str, directory: str) -> None:
    print(json.dumps(WORK[work].measure(Path(directory), int(count), body(int(body_bytes)))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
