"""The suites of puts: durable or not, of each store; the writers, and puts while a sync is slow.

The contender `raw`, a pwrite of the record, shows the share of the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.bench import kafka
from tests.bench.durable import stalling
from tests.bench.durable.work import BODY_BYTES, COLUMNS, Options, Work, spawn
from tests.bench.model import LAKELOG, ROCKETMQ, Column, Contender, Contest, Sample, Suite, counted
from tests.bench.running import JAVA, puts_of_java

NOT_SYNCED: Final[Options] = {"flush": "none", "segment_size_bytes": 1 << 30}
GROUP_COMMIT: Final[Options] = {"flush": "group-commit"}
_BATCH: Final = 1024
_IN_FLIGHT: Final = 256
_MIB: Final = 1 << 20
_MB_S: Final = Column("mb_s", "MB/s", ",.1f")
_BODIES: Final = {128: "128 B", 1024: "1 KiB", 4096: "4 KiB"}


def seconds_of(quick: bool) -> float:
    """How long each contender is measured."""
    return 0.3 if quick else 2.0


def contender(name: str, peer: str, work: Work, note: str, **options: Any) -> Contender:
    """Return a contender that runs a store in a separate process."""
    return Contender(name, note, partial(spawn, peer, replace(work, options=options)))


def java(mode: str, work: Work, note: str, **settings: int | str) -> Contender:
    """Return the real store; its queues and index are built meanwhile."""
    name = ROCKETMQ
    if "inflight" in settings:
        name = f"{ROCKETMQ}, {settings['threads']} threads"

    def run(directory: Path) -> Sample:
        return puts_of_java(mode, work.seconds, directory, body=work.body_bytes, **settings)

    return Contender(name, f"{JAVA}; {note}", run)


# --- nothing waits for the disk ----------------------------------------------------------------


def _put(quick: bool) -> Sequence[Contest]:
    work = Work(seconds_of(quick) / 2)
    return [
        _unsynced(
            f"{counted(threads, 'thread')}, {said}",
            replace(work, threads=threads, body_bytes=body),
            ("lakelog_producer", "the same by producers", {"producers": True}),
        )
        for threads in (1, 4)
        for body, said in _BODIES.items()
    ]


def _put_batch(quick: bool) -> Sequence[Contest]:
    work = Work(seconds_of(quick) / 2)
    return [
        _unsynced(
            f"batches of {size}, {said}",
            replace(work, batch_size=size, body_bytes=body),
            ("lakelog_columns", "each batch is one MessageColumns", {}),
        )
        for size in (32, 1024)
        for body, said in _BODIES.items()
    ]


def _unsynced(title: str, work: Work, other: tuple[str, str, dict[str, Any]]) -> Contest:
    name, note, more = other
    columns = replace(work, columns="columns" in name)
    plain = {**NOT_SYNCED, "accelerator": "none"}
    rates: dict[str, int | str] = {"threads": work.threads, "flush": "ASYNC"}
    if work.batch_size > 1:
        rates["n"] = work.batch_size
    return Contest(
        title,
        [
            contender(LAKELOG, "lakelog", work, "flush=none, segments of 1 GiB", **NOT_SYNCED),
            contender(name, "lakelog", columns, note, **NOT_SYNCED, **more),
            contender("lakelog_plain", "lakelog", work, "accelerator=none", **plain),
            contender(
                *(
                    "lmdb",
                    "lmdb",
                    work,
                    "sync=False, writemap, map_async",
                ),
                sync=False,
                metasync=False,
                writemap=True,
                map_async=True,
            ),
            contender("rocksdb", "rocksdb", work, "log not synced, no compression", sync=False),
            contender(
                *("sqlite", "sqlite", work, "WAL, synchronous=OFF; one transaction per call"),
                journal="WAL",
                synchronous="OFF",
            ),
            contender("raw", "raw", work, "pwrite into a fallocated file", sync_bytes=None),
            java("append" if work.batch_size == 1 else "batch", work, "ASYNC_FLUSH", **rates),
        ],
    )


# --- each put waits for the disk ---------------------------------------------------------------


def _durable(quick: bool) -> Sequence[Contest]:
    seconds = seconds_of(quick)
    return [
        *(_threads(Work(seconds, threads=threads)) for threads in (1, 16, 64, 256)),
        *(_futures(Work(seconds, in_flight=count)) for count in (1, _IN_FLIGHT)),
    ]


def _threads(work: Work) -> Contest:
    return Contest(
        counted(work.threads, "thread"),
        [
            contender(LAKELOG, "lakelog", work, "put, flush=group-commit", **GROUP_COMMIT),
            java("append", work, "SYNC_FLUSH", threads=work.threads, flush="SYNC"),
            *_others(work),
            contender("lmdb grouped", "lmdb", work, "threads share transactions", grouped=True),
        ],
    )


def _futures(work: Work) -> Contest:
    return Contest(
        counted(work.in_flight, "future"),
        [
            contender(LAKELOG, "lakelog", work, "put_async, flush=group-commit", **GROUP_COMMIT),
            *(
                java(
                    "append", work, "SYNC_FLUSH", threads=at, inflight=work.in_flight, flush="SYNC"
                )
                for at in ((1, 4) if work.in_flight > 1 else (1,))
            ),
            *_raw(replace(work, in_flight=0)),
        ],
    )


def _durable_batch(quick: bool) -> Sequence[Contest]:
    seconds = seconds_of(quick)
    return [_batches(Work(seconds, threads, batch_size=_BATCH)) for threads in (1, 4)]


def _batches(work: Work) -> Contest:
    columns = replace(work, columns=True)
    run = partial(kafka.measured, work.threads, work.seconds, BODY_BYTES, 4_000_000)
    return Contest(
        counted(work.threads, "thread"),
        [
            contender(LAKELOG, "lakelog", work, "put_batch, flush=group-commit", **GROUP_COMMIT),
            contender("lakelog columns", "lakelog", columns, "MessageColumns", **GROUP_COMMIT),
            java("batch", work, "SYNC_FLUSH", threads=work.threads, n=_BATCH, flush="SYNC"),
            *_others(work),
            *([Contender("kafka", kafka.SETTINGS, run)] if work.threads > 1 else []),
        ],
    )


def _others(work: Work) -> list[Contender]:
    note = "synchronous=FULL; a transaction per put or batch; a connection, shared under a lock"
    return [
        *_raw(work),
        contender("lmdb", "lmdb", work, "synchronous (its default); a transaction per call"),
        contender("rocksdb", "rocksdb", work, "WriteOptions.sync, no compression"),
        contender("sqlite wal", "sqlite", work, note, journal="WAL"),
        contender("sqlite rollback", "sqlite", work, note, journal="DELETE"),
    ]


def _raw(work: Work) -> list[Contender]:
    note = "pwrite of a record and fdatasync, into one fallocated file"
    return [
        contender("raw", "raw", work, note),
        contender("raw written", "raw", work, "the same, into a file filled before", written=True),
    ]


# --- flush strategies and writers of lakelog ---------------------------------------------------


def _timed(quick: bool) -> Sequence[Contest]:
    """The cost of timed flushes; the goal is at most 10 %."""
    work = Work(seconds_of(quick))
    batches = replace(work, batch_size=_BATCH)
    works = {
        "put": work,
        "put_batch of 1,024": batches,
        "columns of 1,024": replace(batches, columns=True),
    }
    return [
        Contest(
            title,
            [
                contender(LAKELOG, "lakelog", each, "flush=timed, its defaults", flush="timed"),
                contender("none", "lakelog", each, "flush=none", flush="none"),
            ],
        )
        for title, each in works.items()
    ]


def _direct(quick: bool) -> Sequence[Contest]:
    return [_writers(mib, seconds_of(quick)) for mib in (1, 4, 16)]


def _writers(mib: int, seconds: float) -> Contest:
    """Floors write 1 MiB at a time, which counts as 1,024 messages."""
    work, floor = Work(seconds, batch_size=mib * 1024, columns=True), Work(seconds, batch_size=1024)
    options = {"write_bytes": _MIB, "sync_bytes": mib * _MIB}
    note = "os.pwrite of 1 MiB and fdatasync, into a fallocated file"
    return Contest(
        f"a sync every {mib} MiB",
        [
            *(
                contender(
                    LAKELOG if writer == "file" else writer,
                    *("lakelog", work, f"writer={writer}"),
                    flush="inline",
                    writer=writer,
                )
                for writer in ("file", "mmap", "staged", "direct")
            ),
            contender("raw", "raw", floor, note, **options),
            contender("raw direct", "raw", floor, "the same, O_DIRECT", direct=True, **options),
        ],
    )


def _stall(quick: bool) -> Sequence[Contest]:
    """The goal is at most 5 ms."""
    ways: dict[str, tuple[str, dict[str, Any]]] = {
        LAKELOG: ("flush=timed", {"flush": "timed"}),
        "none": ("flush=none: the floor of this machine", {"flush": "none"}),
        "group-commit": (
            "a third thread waits for a sync all the time; the two have wait_store_ok=False",
            {"flush": "group-commit", "syncer": True},
        ),
    }
    return [
        Contest(
            f"writer {writer}",
            [
                Contender(
                    name,
                    note,
                    partial(stalling.spawn, seconds_of(quick), {**options, "writer": writer}),
                )
                for name, (note, options) in ways.items()
            ],
        )
        for writer in ("file", "mmap", "staged", "direct")
    ]


PUTS: Final = (
    Suite(
        "put",
        "messages put one by one, nothing waits for the disk",
        (COLUMNS[0], _MB_S),
        _put,
    ),
    Suite(
        "put_batch",
        "messages put in batches by one thread, nothing waits for the disk",
        (COLUMNS[0], _MB_S),
        _put_batch,
    ),
    Suite(
        "durable",
        "1 KiB messages, each durable before its put returns or its future has a result",
        COLUMNS,
        _durable,
    ),
    Suite(
        "durable_batch",
        f"batches of {_BATCH:,} messages of 1 KiB, each durable before its put returns",
        (*COLUMNS, _MB_S),
        _durable_batch,
    ),
    Suite(
        "timed",
        "1 KiB messages put by one thread, flush=timed beside flush=none",
        COLUMNS,
        _timed,
    ),
    Suite(
        "direct",
        "1 KiB messages as columns, flush=inline: each batch is synced, by each writer",
        (_MB_S, *COLUMNS[1:]),
        _direct,
    ),
    Suite(
        "stall",
        f"2 threads put one each ms and wait for no sync; each sync {stalling.DELAY_MS} ms late",
        (Column("max_us", "max us"), *COLUMNS[1:], Column("syncs", "syncs")),
        _stall,
        lower_is_better=True,
    ),
)
