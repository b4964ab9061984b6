"""Measures the time until 10,000 new rows are in a table; `python -m` measures one way.

`dispatch`: a dispatcher in a separate process lands messages that this process puts under
group-commit; a row is visible when a reader of the table finds the position in its commit.

`stream` and `kafka`: Spark's streaming without a pause between batches; foreachBatch appends
them, and rows are visible when it has returned. Spark reports the duration of a batch. A trigger
without new rows only asks for the latest offset; that time is reported as idle.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import lakelog
from tests.bench import running
from tests.bench.kafka import Producing, create_topic
from tests.bench.lake.messages import bodies, columns
from tests.bench.model import Sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS: Final = 10_000
_CORES: Final = 4
_TABLE: Final = "lake.rocketmq.increments"
_WARM: Final = 5
_POLL_SECONDS: Final = 0.005
_LONGEST_PAUSE_SECONDS: Final = 0.5  # so that increments come at any moment of an interval
_TIMEOUT_SECONDS: Final = 120


@dataclass(frozen=True)
class Increments:
    """The parameters of a measurement.

    :ivar by: ``dispatch``, ``stream`` or ``kafka``
    :ivar sink: ``noop``, ``parquet``, ``iceberg`` or ``delta``
    :ivar count: number of increments, after some to warm up
    :ivar options: further options of the command line
    :ivar address: address of the Kafka broker
    """

    by: str
    sink: str
    count: int
    folder: str = ""
    options: list[str] = field(default_factory=list)
    address: str = ""


def spawn(what: Increments) -> Sample:
    """Run in a new process and wait for its figures."""
    from tests.bench.lake.job import call

    return call(__name__, json.dumps(asdict(what)), Path(what.folder))


class Putter:
    """Puts increments into a new store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store = lakelog.open(path, flush="group-commit")
        self._next = 0

    def __enter__(self) -> Putter:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def put(self) -> int:
        """Put one increment; return the end offset of the log."""
        self._store.put_batch(columns(range(self._next, self._next + ROWS)))
        self._next += ROWS
        return self._store.max_offset


def measured(count: int, once: Callable[[], None]) -> list[float]:
    """Return the durations of ``count`` calls of ``once`` in seconds, after a warm-up."""
    bodies()
    took = []
    for _ in range(_WARM + count):
        time.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))
        begin = time.perf_counter()
        once()
        took.append(time.perf_counter() - begin)
    return took[_WARM:]


def sample(visible: list[float]) -> dict[str, float]:
    """Return the percentiles, in ms."""
    ordered = sorted(visible)
    return {
        "p50_ms": statistics.median(ordered) * 1e3,
        "p99_ms": ordered[len(ordered) * 99 // 100] * 1e3,
    }


def until(reached: Callable[[], bool]) -> None:
    """Poll until ``reached`` is true."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing was to be seen within {_TIMEOUT_SECONDS} s")
        time.sleep(_POLL_SECONDS)


def _dispatched(what: Increments) -> Sample:
    from lakelog_lake.landing.targets import identity_of
    from plugins.lake.tests.landing.passes import sink_for

    to = f"{what.sink}:{Path(what.folder, 'table')}"
    with Putter(Path(what.folder, "store")) as putter, _dispatcher(putter.path, to, what.options):
        sink, identity = sink_for(to), identity_of(putter.path, None)
        sink.prepare()

        def once() -> None:
            end = putter.put()

            def landed() -> bool:
                position = sink.head(identity).position
                return position is not None and position.end >= end

            until(landed)

        return sample(measured(what.count, once))


@contextmanager
def _dispatcher(store: Path, to: str, options: list[str]) -> Iterator[None]:
    command = running.python("lakelog", "dispatch", store, "--to", to, *options)
    with Path(store.parent, "dispatcher.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def run(what: Increments) -> Sample:
    """Measure one way."""
    if what.by == "dispatch":
        return _dispatched(what)
    return _streamed(what)


def _streamed(what: Increments) -> Sample:
    """Run a query, and put increments one after another."""
    from tests.bench.lake import native

    is_kafka = what.by == "kafka"
    spark = native.started(_CORES, Path(what.folder, "warehouse"), kafka=is_kafka)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    seen = Seen(what.sink)
    with ExitStack() as stack:
        stack.callback(spark.stop)
        if is_kafka:
            create_topic(what.address)
            put: Callable[[], object] = partial(Producing(what.address).put, ROWS)
            options = native.kafka_options(what.address) | {"startingOffsets": "earliest"}
            frame = spark.readStream.format("kafka").options(**options).load()
        else:
            putter = stack.enter_context(Putter(Path(what.folder, "store")))
            put = putter.put
            frame = spark.readStream.format("lakelog").load(str(putter.path))
        query = (
            frame.writeStream.foreachBatch(seen.take)
            .option("checkpointLocation", str(Path(what.folder, "checkpoint")))
            .trigger(processingTime="0 seconds")
            .start()
        )
        stack.callback(query.stop)
        visible = measured(what.count, _once(query, seen, put))
        return sample(visible) | _batches(query, what.count)


def _once(query: Any, seen: Seen, put: Callable[[], object]) -> Callable[[], None]:
    wanted = 0

    def once() -> None:
        nonlocal wanted
        wanted += ROWS
        put()

        def reached() -> bool:
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
            return seen.rows >= wanted

        until(reached)

    return once


class Seen:
    """Writes batches, and counts the written rows."""

    def __init__(self, sink: str) -> None:
        self.rows = 0
        self._sink = sink
        self._made = False

    def take(self, frame: DataFrame, number: int) -> None:
        """Write one batch and count its rows by an accumulator, without another job."""
        del number
        from pyspark.sql import Observation, functions

        counted = Observation()
        observed = frame.observe(counted, functions.count(functions.lit(1)).alias("rows"))
        if self._sink == "noop":
            observed.write.format("noop").mode("overwrite").save()
        else:
            self._append(observed)
        self.rows += int(counted.get["rows"])

    def _append(self, frame: DataFrame) -> None:
        writer = frame.writeTo(_TABLE)
        if self._made:
            writer.append()
        else:
            writer.using("iceberg").create()
            self._made = True


def _batches(query: Any, count: int) -> dict[str, float]:
    """Return Spark's figures of the batches with rows."""
    found = [each["durationMs"] for each in query.recentProgress if each["numInputRows"]][-count:]
    return {
        "batch_ms": statistics.median(each["triggerExecution"] for each in found),
        "idle_ms": statistics.median(each["latestOffset"] for each in found),
    }


if __name__ == "__main__":
    print(json.dumps(run(Increments(**json.loads(sys.argv[1])))))
