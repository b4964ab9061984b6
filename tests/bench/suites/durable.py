"""Puts that return after the message is durable, for every store that promises it.

The contender `raw`, a pwrite of the record and an fdatasync, shows the share of the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.bench import durable
from tests.bench.durable import child
from tests.bench.durable.work import BODY_BYTES, COLUMNS, Options, Work
from tests.bench.kafka import broker
from tests.bench.kafka import contender as kafka
from tests.bench.model import LAKELOG, CannotRunError, Column, Contender, Contest, Sample
from tests.bench.peers import java
from tests.oracle.java import build_oracle, missing

GROUP_COMMIT: Final[Options] = {"flush": "group-commit"}

_SECONDS: Final = 2.0
_QUICK_SECONDS: Final = 0.3
_THREADS: Final = (1, 16, 64, 256)
_IN_FLIGHT: Final = 256
_BATCH: Final = 1024
_BATCH_THREADS: Final = (1, 4)
_PRODUCERS: Final = 4
_PRODUCER_BATCH_BYTES: Final = 4_000_000
_WARM_UP_MS: Final = 2000
# Of each thread; with the default of 4 MiB, 256 threads do not fit into the heap's size.
_JAVA_BUFFER_BYTES: Final = {"append": 128 << 10, "batch": 2 << 20}
_JAVA: Final = (
    "DefaultMessageStore 5.3.3, SYNC_FLUSH, default files, heap 512 MiB, 2 s of warm-up, small "
    "encoder buffers; queues and index built meanwhile"
)
_RAW: Final = "pwrite of a record and fdatasync, into one fallocated file"


def contender(name: str, driver: str, work: Work, note: str, **options: Any) -> Contender:
    """Return a contender that runs a store in a separate process."""
    work = replace(work, options=options or work.options)
    return Contender(name, note, partial(_run, driver, work))


def _run(driver: str, work: Work, directory: Path) -> Sample:
    durable.module(driver)
    return child.spawn(driver, work, directory)


class Durable:
    name = "durable"
    about = "1 KiB messages, each durable before its put returns or its future has a result"
    columns: Sequence[Column] = COLUMNS
    lower_is_better = False

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        seconds = _QUICK_SECONDS if quick else _SECONDS
        return [
            *(_threads(Work(seconds, threads=threads)) for threads in _THREADS),
            *(_futures(Work(seconds, in_flight=count)) for count in (1, _IN_FLIGHT)),
        ]


class DurableBatch:
    name = "durable_batch"
    about = f"batches of {_BATCH:,} messages of 1 KiB, each durable before its put returns"
    columns: Sequence[Column] = (*COLUMNS, Column("mb_s", "MB/s"))
    lower_is_better = False

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        seconds = _QUICK_SECONDS if quick else _SECONDS
        return [_batches(Work(seconds, threads, batch_size=_BATCH)) for threads in _BATCH_THREADS]


def _threads(work: Work) -> Contest:
    return Contest(
        f"{work.threads} thread{'s' * (work.threads > 1)}",
        [
            contender(LAKELOG, "lakelog", work, "put, flush=group-commit", **GROUP_COMMIT),
            _java(work, "append", threads=work.threads),
            *_others(work),
            contender("lmdb grouped", "lmdb", work, "threads share transactions", grouped=True),
        ],
    )


def _futures(work: Work) -> Contest:
    ours = contender(LAKELOG, "lakelog", work, "put_async, flush=group-commit", **GROUP_COMMIT)
    theirs = [_java(work, "append", threads=1, inflight=work.in_flight)]
    if work.in_flight > 1:
        theirs.append(_java(work, "append", threads=4, inflight=work.in_flight))
    return Contest(
        f"{work.in_flight} future{'s' * (work.in_flight > 1)}",
        [ours, *theirs, *_raw(replace(work, in_flight=0))],
    )


def _batches(work: Work) -> Contest:
    columns = replace(work, columns=True)
    return Contest(
        f"{work.threads} thread{'s' * (work.threads > 1)}",
        [
            contender(LAKELOG, "lakelog", work, "put_batch, flush=group-commit", **GROUP_COMMIT),
            contender("lakelog columns", "lakelog", columns, "MessageColumns", **GROUP_COMMIT),
            _java(work, "batch", threads=work.threads, n=work.batch_size),
            *_others(work),
            *([_kafka(work)] if work.threads == _PRODUCERS else []),
        ],
    )


def _others(work: Work) -> list[Contender]:
    note = "synchronous=FULL; a transaction per put or batch; a connection, shared under a lock"
    return [
        *_raw(work),
        contender(
            "lmdb", "lmdb", work, "synchronous (its default); a transaction per put or batch"
        ),
        contender("rocksdb", "rocksdb", work, "WriteOptions.sync, no compression"),
        contender("sqlite wal", "sqlite", work, note, journal="WAL"),
        contender("sqlite rollback", "sqlite", work, note, journal="DELETE"),
    ]


def _raw(work: Work) -> list[Contender]:
    return [
        contender("raw", "raw", work, _RAW),
        contender("raw written", "raw", work, "the same, into a file filled before", written=True),
    ]


def _java(work: Work, mode: str, **settings: int) -> Contender:
    name = f"{java.NAME}, {settings['threads']} threads" if "inflight" in settings else java.NAME
    return Contender(name, _JAVA, partial(_run_java, work.seconds, mode, settings))


def _run_java(seconds: float, mode: str, settings: dict[str, int], directory: Path) -> Sample:
    reason = missing()
    if reason:
        raise CannotRunError(reason)
    warm_ms = _WARM_UP_MS if seconds >= 1 else 10
    row = build_oracle().bench(
        directory,
        mode,
        {"maxMessageSize": str(_JAVA_BUFFER_BYTES[mode])},
        flush="SYNC",
        body=BODY_BYTES,
        ms=round(seconds * 1000),
        warm_ms=warm_ms,
        **settings,
    )
    return {
        "rows_s": row["msgs_s"],
        "mb_s": row["mb_s"],
        "p50_us": row["p50_us"],
        "p99_us": row["p99_us"],
    }


def _kafka(work: Work) -> Contender:
    run = partial(kafka.run, _PRODUCERS, work.seconds, BODY_BYTES, _PRODUCER_BATCH_BYTES)
    return Contender("kafka", broker.SETTINGS, run)
