"""Finding messages: builds queues and index, reads queues, looks up keys and times; and decoding.

Each contender first writes its messages, in a separate process, and then does the same work.
``python -m`` does one kind of lakelog's work, and prints its figures.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import lakelog
from lakelog import Message, Store
from lakelog.dispatch import DispatchCursor, resume
from lakelog.files.filesystem import RealFileSystem
from lakelog.format.record_batch import decode_run
from lakelog.hooks import Context
from lakelog.registry import Registry
from lakelog.store.strategies import make_dispatchers
from tests.bench import running
from tests.bench.content import QUEUES, TAGS, TOPIC, body, key, run_of_records
from tests.bench.model import (
    LAKELOG,
    ROCKETMQ,
    CannotRunError,
    Column,
    Contender,
    Contest,
    Sample,
    Suite,
)

_BATCH: Final = 4096
_CHEAP: Final = ("queue_offset", "physical_offset", "store_timestamp", "tags", "body")
Measure: TypeAlias = Callable[[Path, int, bytes], Sample]


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
    return {"rows_s": count / seconds}


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


def _read(method: str, at_once: int, **more: Any) -> Measure:
    def measure(directory: Path, count: int, content: bytes) -> Sample:
        _write(directory, count, content)
        with _open(directory) as store:
            get = getattr(store, method)

            def everything() -> None:
                for queue_id in range(QUEUES):
                    offset = 0
                    while offset < count // QUEUES:
                        offset = get(TOPIC, queue_id, offset, at_once, **more).next_offset

            everything()
            return _timed(count // QUEUES * QUEUES, everything)

    return measure


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


WORK: Final[Mapping[str, tuple[str, Measure]]] = {
    "dispatch": ("consume queues and hash index, from 1 GiB segments", _dispatch),
    "get": ("get of 32 messages as StoredMessage", _read("get", 32)),
    "get_columns": (
        "get_columns of 4,096: five columns, bodies among them",
        _read("get_columns", 4096, columns=_CHEAP),
    ),
    "unchecked": (
        "the same without checksums, as the peer reads",
        _read("get_columns", 4096, columns=_CHEAP, verify=False),
    ),
    "all_columns": ("get_columns of 4,096: every column", _read("get_columns", 4096)),
    "query": ("query, topic and key checked again", _query),
    "bytime": ("offset_by_time", _bytime),
    "latency": ("put, then wait_dispatched", _latency),
}
"""Kinds of lakelog's work: what they are, and what measures them."""

_ROWS: Final = (Column("rows_s", "messages/s"),)
_CALLS: Final = (
    Column("rows_s", "calls/s"),
    Column("p50_us", "p50 us", ",.1f"),
    Column("p99_us", "p99 us", ",.1f"),
)


def ours(work: str, count: int, body_bytes: int, directory: Path) -> Sample:
    """Measure one kind of work in a new process."""
    return running.sample(running.python(__name__, work, count, body_bytes, directory))


def _theirs(mode: str, count: int, body_bytes: int, directory: Path) -> Sample:
    row = running.real_store().bench(directory, mode, body=body_bytes, count=count)
    return {"rows_s": row["msgs_s"], "p50_us": row["p50_us"], "p99_us": row["p99_us"]}


def _find(
    name: str,
    about: str,
    columns: Sequence[Column],
    *,
    most: int,
    works: Sequence[str] = (),
    theirs: str = "",
    bodies: Sequence[int] = (128,),
) -> Suite:
    """Return the suite of one kind of work.

    :param most: how many messages
    :param works: lakelog's kinds of work; default: one of the suite's name
    :param theirs: the mode of the real store's benchmark; default: the suite's name
    :param bodies: sizes of the bodies, in bytes, with one contest each
    """

    def contest(count: int, body_bytes: int) -> Contest:
        contenders = [
            Contender(
                work if at else LAKELOG, WORK[work][0], partial(ours, work, count, body_bytes)
            )
            for at, work in enumerate(works or [name])
        ]
        run = partial(_theirs, theirs or name, count, body_bytes)
        contenders.append(Contender(ROCKETMQ, f"{running.JAVA}, ASYNC_FLUSH", run))
        return Contest(f"{count:,} messages of {body_bytes:,} B", contenders)

    return Suite(
        name,
        about,
        columns,
        lambda quick: [contest(most // 20 if quick else most, each) for each in bodies],
    )


# --- decoding ----------------------------------------------------------------------------------

_PASSES: Final = 5
_COLUMNS: Final = (
    *("queue_ids", "queue_offsets", "physical_offsets", "sys_flags", "store_timestamps_ms"),
)


def _decoding(quick: bool) -> Sequence[Contest]:
    run_bytes = (4 if quick else 32) << 20
    notes = {
        LAKELOG: "decode_run with all checksums, and five columns read",
        "unverified": "decode_run(verify=False), and five columns read",
        "memcpy": "the bytes alone, copied",
    }
    return [
        Contest(
            f"{size:,} B",
            [
                Contender(name, note, partial(decoded, name, size, run_bytes // size))
                for name, note in notes.items()
            ],
        )
        for size in (128, 1024, 4096)
    ]


def decoded(name: str, body_bytes: int, count: int, _directory: Path) -> Sample:
    """Return the best of some passes, because disturbances only make a pass slower."""
    records = run_of_records(count, body(body_bytes))
    target = memoryview(bytearray(len(records)))

    def once() -> None:
        if name == "memcpy":
            target[:] = records
            return
        batch = decode_run(records, 0, verify=name == LAKELOG, max_records=count)
        if len(batch) != count:
            raise CannotRunError(f"{len(batch)} of {count} records decoded")
        for column in _COLUMNS:
            getattr(batch, column)

    rows_s = max(_timed(count, once)["rows_s"] for _ in range(_PASSES))
    return {"rows_s": rows_s, "gb_s": rows_s / count * len(records) / 1e9}


FIND: Final = (
    Suite(
        "decode",
        "a run of records in memory, found and checked; their fixed fields as columns",
        (Column("rows_s", "records/s"), Column("gb_s", "GB/s", ",.2f")),
        _decoding,
    ),
    _find(
        "dispatch",
        "queues and index (one key each) built from records that wait in the log",
        _ROWS,
        most=2_000_000,
        theirs="reput",
    ),
    _find(
        "read",
        "all messages of four queues, read 32 at a time and decoded; columns 4,096 at a time",
        _ROWS,
        most=500_000,
        works=("get", "get_columns", "unchecked", "all_columns"),
        bodies=(128, 1024),
    ),
    _find(
        "query",
        "messages looked up by key, in an index of the default size",
        _CALLS,
        most=100_000,
    ),
    _find("bytime", "offset by store time", _CALLS, most=100_000),
    _find("latency", "from a put until the message can be read, one by one", _CALLS, most=10_000),
)


def _main(work: str, count: str, body_bytes: str, directory: str) -> None:
    _, measure = WORK[work]
    print(json.dumps(measure(Path(directory), int(count), body(int(body_bytes)))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
