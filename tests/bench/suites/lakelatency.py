"""Latency from a put to a row in a table: increments of 10,000 rows, warm, at random moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench.kafka import broker
from tests.bench.lake import kafkajars
from tests.bench.lake.increments import ROWS, Increments, spawn
from tests.bench.model import Column, Contender, Contest, Sample

_COUNT: Final = 100
_QUICK_COUNT: Final = 5
_QUICK_LOOKS: Final = ["--interval-ms", "10"]
_DISPATCH: Final = "put under group-commit; lakelog dispatch beside it"
_STREAM: Final = "put under group-commit; a streaming query, foreachBatch"
_KAFKA: Final = f"the same from Kafka, acknowledged messages; {broker.SETTINGS}"


class LakeLatency:
    name = "lake_latency"
    about = f"until {ROWS:,} new rows of 1 KiB are in a table; the aim is 500 ms"
    columns: Sequence[Column] = (
        Column("p50_ms", "p50 ms"),
        Column("p99_ms", "p99 ms"),
        Column("batch_ms", "micro-batch ms"),
        Column("idle_ms", "idle ms"),
    )
    lower_is_better = True

    def contests(self, *, quick: bool) -> Sequence[Contest]:
        count = _QUICK_COUNT if quick else _COUNT
        return [Contest(f"{count} increments", [*_dispatchers(count), *_streams(count)])]


_PROCESSES: Final = ["--engine", "processes"]


def _dispatchers(count: int) -> list[Contender]:
    wanted: list[tuple[str, str, list[str]]] = [
        *((f"dispatch to {sink}", sink, _PROCESSES) for sink in ("iceberg", "delta", "parquet")),
        ("dispatch, 10 ms, to iceberg", "iceberg", [*_QUICK_LOOKS, *_PROCESSES]),
        (
            "dispatch by spark to iceberg",
            "iceberg",
            [*_QUICK_LOOKS, "--engine", "spark"],
        ),
    ]
    return [
        Contender(
            name,
            " ".join([_DISPATCH, *options]),
            partial(_run, Increments("dispatch", sink, count, options=options)),
            {"kafka": "kafka stream to iceberg"},
        )
        for name, sink, options in wanted
    ]


def _streams(count: int) -> list[Contender]:
    return [
        Contender(
            f"{'lakelog' if by == 'stream' else by} stream to {sink}",
            note,
            partial(_run, Increments(by, sink, count)),
            {"kafka": f"kafka stream to {sink}"},
        )
        for by, note in (("stream", _STREAM), ("kafka", _KAFKA))
        for sink in ("noop", "iceberg")
    ]


def _run(what: Increments, directory: Path) -> Sample:
    what = replace(what, folder=str(directory))
    if what.by != "kafka":
        return spawn(what)
    kafkajars.class_path()
    place = directory / "broker"
    place.mkdir()
    with broker.running(place) as address:
        return spawn(replace(what, address=address))
