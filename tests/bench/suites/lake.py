"""Landing messages in tables, compared with the raw limit and with Spark's Kafka source.

All run in the same rounds. A ratio above 1 means faster than the other one. MB are bytes of bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench.kafka import broker
from tests.bench.lake import filling, kafkajars, topic
from tests.bench.lake.job import COLUMNS, WARM_ROWS, Job, spawn
from tests.bench.lake.messages import BODY_BYTES
from tests.bench.model import Column, Contender, Contest, Sample
from tests.bench.suites.recovery import filled_bytes

RAW: Final = "raw"
TABLES: Final = ("parquet", "iceberg", "delta")
_CORES: Final = (1, 2)
_KAFKA_SINKS: Final = ("noop", "parquet", "iceberg")
_NOTES: Final = {
    "source": "Spark's own writers over format('lakelog'); tables without partitions",
    "tasks": "landing by Spark's tasks: lakelog dispatch --once --engine spark; partitioned, "
    "sorted, synced, its defaults",
    "processes": "the same by plain processes: lakelog dispatch --once --engine processes",
    "parquet": "Spark reading the files that raw wrote",
    "kafka": f"Spark's Kafka source, no headers; {broker.SETTINGS}",
}
_RAW_NOTE: Final = (
    "as many plain processes: lakelog's decoding, pyarrow's Parquet, a sync of each; no Spark, "
    "no order, no commit"
)


class Lake:
    name = "lake"
    about = "1 KiB messages of a closed store to tables, everything warm; sessions not counted"
    columns: Sequence[Column] = (*COLUMNS, Column("seconds", "s", ",.1f"))
    lower_is_better = False

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        rows = filled_bytes(quick=quick) // BODY_BYTES
        return [_contest(cores, rows) for cores in _CORES]


def _contest(cores: int, rows: int) -> Contest:
    def one(by: str, sink: str) -> Contender:
        job = Job(by, sink, cores, rows)
        return Contender(f"{by} to {sink}", _NOTES[by], partial(_run, job), _beside(by, sink))

    raw = Job("raw", "parquet", cores, rows)
    return Contest(
        f"local[{cores}], {rows:,} rows",
        [
            Contender(RAW, _RAW_NOTE, partial(_run, raw)),
            *(one("source", sink) for sink in ("noop", *TABLES)),
            *(one(by, sink) for by in ("tasks", "processes") for sink in TABLES),
            one("parquet", "noop"),
            *(one("kafka", sink) for sink in _KAFKA_SINKS),
        ],
    )


def _beside(by: str, sink: str) -> dict[str, str]:
    """Return the contenders for ratios; without a Kafka sink for Delta, the one for Parquet."""
    kafka = f"kafka to {sink if sink in _KAFKA_SINKS else 'parquet'}"
    return {RAW: RAW} | ({} if by == "kafka" else {"kafka": kafka})


def _run(job: Job, directory: Path) -> Sample:
    shared = directory.parent
    job = replace(job, folder=str(directory))
    if job.by == "kafka":
        kafkajars.class_path()
        with topic.running(shared, job.rows) as address:
            return spawn(replace(job, source=address))
    stores = [filling.store(shared, rows) for rows in (job.rows, WARM_ROWS)]
    if job.by == "parquet":
        stores = [_as_parquet(each) for each in stores]
    source, warm = map(str, stores)
    return spawn(replace(job, source=source, warm=warm))


def _as_parquet(store: Path) -> Path:
    """Return a folder of Parquet files with the rows of ``store``."""
    rows = int(store.name.rpartition("-")[2])

    def make(unfinished: Path) -> None:
        unfinished.mkdir()
        job = Job("raw", "parquet", _CORES[-1], rows, str(store), str(store), str(unfinished))
        spawn(job)

    return filling.once(store.with_name(f"parquet-{rows}"), make) / "table"
