"""Landing messages in tables, compared with the raw limit and with Spark's Kafka source.

All run in the same rounds. A ratio above 1 means faster than the other one. MB are bytes of bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench import kafka
from tests.bench.durable.opening import filled_bytes
from tests.bench.lake import increments, native
from tests.bench.lake.increments import ROWS, Increments
from tests.bench.lake.job import COLUMNS, WARM_ROWS, Job, spawn
from tests.bench.lake.messages import BODY_BYTES, TOPICS, once, store, store_of_topics
from tests.bench.model import Column, Contender, Contest, Sample, Suite

_RAW: Final = "raw"
_TABLES: Final = ("parquet", "iceberg", "delta")
_CORES: Final = 2
_KAFKA_SINKS: Final = ("noop", "parquet", "iceberg")
_NOTES: Final = {
    _RAW: "as many plain processes: lakelog's decoding, pyarrow's Parquet, a sync of each; no "
    "Spark, no order, no commit",
    "source": "Spark's own writers over format('lakelog'); tables without partitions",
    "tasks": "landing by Spark's tasks: lakelog dispatch --once --engine spark; partitioned, "
    "sorted, synced, its defaults",
    "processes": "the same by plain processes: lakelog dispatch --once --engine processes",
    "parquet": "Spark reading the files that raw wrote",
    "kafka": f"Spark's Kafka source, no headers; {kafka.SETTINGS}",
}


def _landings(quick: bool) -> Sequence[Contest]:
    rows = filled_bytes(quick) // BODY_BYTES
    ways = [
        (_RAW, "parquet"),
        *(("source", sink) for sink in ("noop", *_TABLES)),
        *((by, sink) for by in ("tasks", "processes") for sink in _TABLES),
        ("parquet", "noop"),
        *(("kafka", sink) for sink in _KAFKA_SINKS),
    ]
    return [
        Contest(
            f"local[{cores}], {rows:,} rows",
            [_landing(Job(by, sink, cores, rows)) for by, sink in ways],
        )
        for cores in (1, 2)
    ]


def _landing(job: Job) -> Contender:
    """Return a contender; without a Kafka sink for Delta, its ratio is to the one for Parquet."""
    name = job.by if job.by == _RAW else f"{job.by} to {job.sink}"
    other = job.sink if job.sink in _KAFKA_SINKS else "parquet"
    beside = {} if job.by == _RAW else {_RAW: _RAW, "kafka": f"kafka to {other}"}
    if job.by == "kafka":
        del beside["kafka"]
    return Contender(name, _NOTES[job.by], partial(_landed, job), beside)


def _landed(job: Job, directory: Path) -> Sample:
    shared = directory.parent
    job = replace(job, folder=str(directory))
    if job.by == "kafka":
        native.class_path()
        with kafka.filled(shared, job.rows) as address:
            return spawn(replace(job, source=address))
    stores = [store(shared, rows) for rows in (job.rows, WARM_ROWS)]
    if job.by == "parquet":
        stores = [_as_parquet(each) for each in stores]
    source, warm = map(str, stores)
    return spawn(replace(job, source=source, warm=warm))


def _as_parquet(source: Path) -> Path:
    """Return a folder of Parquet files with the rows of ``source``."""
    rows = int(source.name.rpartition("-")[2])

    def make(unfinished: Path) -> None:
        unfinished.mkdir()
        spawn(Job(_RAW, "parquet", 2, rows, str(source), str(source), str(unfinished)))

    return once(source.with_name(f"parquet-{rows}"), make) / "table"


def _backlogs(quick: bool) -> Sequence[Contest]:
    rows = filled_bytes(quick) // BODY_BYTES
    ways = [(by, sink) for sink in ("iceberg", "delta") for by in ("hand", "processes", "tasks")]
    return [Contest(f"{rows:,} rows", [_backlog(Job(by, sink, _CORES, rows)) for by, sink in ways])]


def _backlog(job: Job) -> Contender:
    beside = {} if job.by == "hand" else {"hand": f"hand to {job.sink}"}
    note = _NOTES.get(job.by, "lakelog's columns, appended by pyiceberg or deltalake, 1 GiB each")
    return Contender(f"{job.by} to {job.sink}", note, partial(_landed_topics, job), beside)


def _landed_topics(job: Job, directory: Path) -> Sample:
    source, warm = (store_of_topics(directory.parent, rows) for rows in (job.rows, WARM_ROWS))
    return spawn(replace(job, source=str(source), warm=str(warm), folder=str(directory)))


# --- latency -----------------------------------------------------------------------------------

_QUICK_LOOKS: Final = ["--interval-ms", "10"]
_PROCESSES: Final = ["--engine", "processes"]


def _latencies(quick: bool) -> Sequence[Contest]:
    count = 5 if quick else 100
    return [Contest(f"{count} increments", [*_dispatchers(count), *_streams(count)])]


def _dispatchers(count: int) -> list[Contender]:
    by_spark = [*_QUICK_LOOKS, "--engine", "spark"]
    wanted: list[tuple[str, str, list[str]]] = [
        *((f"dispatch to {sink}", sink, _PROCESSES) for sink in ("iceberg", "delta", "parquet")),
        ("dispatch, 10 ms, to iceberg", "iceberg", [*_QUICK_LOOKS, *_PROCESSES]),
        ("dispatch by spark to iceberg", "iceberg", by_spark),
    ]
    return [
        Contender(
            name,
            " ".join(["put under group-commit; lakelog dispatch beside it", *options]),
            partial(_visible, Increments("dispatch", sink, count, options=options)),
            {"kafka": "kafka stream to iceberg"},
        )
        for name, sink, options in wanted
    ]


def _streams(count: int) -> list[Contender]:
    notes = {
        "stream": "put under group-commit; a streaming query, foreachBatch",
        "kafka": f"the same from Kafka, acknowledged messages; {kafka.SETTINGS}",
    }
    return [
        Contender(
            f"{'lakelog' if by == 'stream' else by} stream to {sink}",
            note,
            partial(_visible, Increments(by, sink, count)),
            {"kafka": f"kafka stream to {sink}"},
        )
        for by, note in notes.items()
        for sink in ("noop", "iceberg")
    ]


def _visible(what: Increments, directory: Path) -> Sample:
    what = replace(what, folder=str(directory))
    if what.by != "kafka":
        return increments.spawn(what)
    native.class_path()
    place = directory / "broker"
    place.mkdir()
    with kafka.broker(place) as address:
        return increments.spawn(replace(what, address=address))


LAKE: Final = (
    Suite(
        "lake",
        "1 KiB messages of a closed store to tables, everything warm; sessions not counted",
        (*COLUMNS, Column("seconds", "s", ",.1f")),
        _landings,
    ),
    Suite(
        "lake_backlog",
        f"messages of {TOPICS} topics, 1 KiB each, to tables partitioned by topic and day",
        (
            Column("cpu_s", "CPU s", ",.1f"),
            Column("seconds", "s", ",.1f"),
            Column("peak_mb", "MB of memory"),
            Column("files", "files"),
            Column("file_mb", "MB of a file", ",.2f"),
        ),
        _backlogs,
        lower_is_better=True,
    ),
    Suite(
        "lake_latency",
        f"until {ROWS:,} new rows of 1 KiB are in a table; the aim is 500 ms",
        (
            Column("p50_ms", "p50 ms"),
            Column("p99_ms", "p99 ms"),
            Column("batch_ms", "micro-batch ms"),
            Column("idle_ms", "idle ms"),
        ),
        _latencies,
        lower_is_better=True,
    ),
)
