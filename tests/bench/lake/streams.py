"""Micro-batches of Spark's streaming, from a store that this process writes, or from Kafka."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.bench.lake import native, topic
from tests.bench.lake.increments import ROWS, Increments, Putter, measured, sample, until
from tests.bench.model import Sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CORES: Final = 4
_KEPT: Final = "10000"
_TABLE: Final = "lake.rocketmq.increments"


def run(what: Increments) -> Sample:
    """Run a query, and put increments one after another."""
    is_kafka = what.by == "kafka"
    spark = native.started(_CORES, Path(what.folder, "warehouse"), kafka=is_kafka)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", _KEPT)
    seen = Seen(what.sink)
    with ExitStack() as stack:
        stack.callback(spark.stop)
        if is_kafka:
            topic.create(what.address, topic.TOPIC)
            put: Callable[[], object] = topic.Producing(what.address, ROWS).put
            frame = _kafka(spark, what.address)
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


def _kafka(spark: SparkSession, address: str) -> DataFrame:
    options = native.kafka_options(address) | {"startingOffsets": "earliest"}
    return spark.readStream.format("kafka").options(**options).load()


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
