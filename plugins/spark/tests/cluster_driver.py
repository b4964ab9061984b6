"""A driver in a process of its own: reads a store, streams it, lands it; says what came of it.

Its only argument is JSON: ``master``, ``folder``, ``store`` and ``kinds`` of tables, or the ``url``
of an archive, and perhaps ``python``, which is the executors' and lacks lakelog. So is what it
prints.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lakelog_spark
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from lakelog_spark.catalog import spark_iceberg_sink
from lakelog_spark.engine import spark as by_spark
from plugins.lake.tests.landing.passes import land, sink_for
from plugins.spark.tests.clusters import OF_A_DRIVER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = TaskLimits(pass_bytes=80 << 10, task_bytes=40 << 10, file_bytes=40 << 10)
CONFIG = {**OF_A_DRIVER, "spark.sql.shuffle.partitions": "2"}


def main() -> None:
    given = json.loads(sys.argv[1])
    folder = Path(given["folder"])
    spark = lakelog_spark.session(
        folder / "lake", master=given["master"], python=given.get("python"), config=CONFIG
    )
    if given.get("python"):
        lakelog_spark.ship(spark)
    lakelog_spark.register(spark)
    if "url" in given:
        said = of_an_archive(spark, given["url"])
    else:
        said = of_a_store(spark, given["store"], folder, given["kinds"])
    said["executors"] = executors(spark)
    spark.stop()
    sys.stdout.write(json.dumps(said) + "\n")


def of_a_store(spark: SparkSession, store: str, folder: Path, kinds: list[str]) -> dict[str, Any]:
    return {
        "batch": batch(spark, store),
        "stream": stream(spark, store, folder / "stream"),
        "lakelog_from": spark.sparkContext.parallelize([0], 1).map(where).first(),
        "landed": landed(spark, Path(store), folder, kinds),
    }


def of_an_archive(spark: SparkSession, url: str) -> dict[str, Any]:
    """The rows of an archive, read by Spark, and once more from the table they were written to."""
    frame = spark.read.format("lakelog").load(url)
    keys = ("topic", "queue_id", "queue_offset", "physical_offset")
    frame.writeTo("lake.rocketmq.archived").create()
    table = spark.table("lake.rocketmq.archived")
    return {
        "partitions": frame.rdd.getNumPartitions(),
        "filtered": frame.where("topic = 'topic-1' AND queue_offset < 5").count(),
        "read": sorted(map(list, frame.select(*keys).collect())),
        "table": sorted(map(list, table.select(*keys).collect())),
    }


def batch(spark: SparkSession, store: str) -> dict[str, int]:
    options = {"max_partition_bytes": str(32 << 10)}
    frame = spark.read.format("lakelog").options(**options).load(store)
    filtered = frame.where("topic = 'topic-1' AND queue_offset < 5")
    by_key = spark.read.format("lakelog").option("key", "key-7").load(store)
    return {
        "rows": frame.count(),
        "partitions": frame.rdd.getNumPartitions(),
        "filtered": filtered.count(),
        "by_key": by_key.count(),
    }


def stream(spark: SparkSession, store: str, target: Path) -> int:
    writer = spark.readStream.format("lakelog").load(store).writeStream.format("parquet")
    query = writer.option("checkpointLocation", f"{target}.state").trigger(availableNow=True)
    assert query.start(str(target)).awaitTermination(120)
    return spark.read.parquet(str(target)).select("physical_offset").distinct().count()


def executors(spark: SparkSession) -> list[str]:
    """Those who ran the tasks of a job, of which each has a core of its own."""

    def name(_: Iterable[int]) -> list[str]:
        import os

        return [os.environ.get("SPARK_EXECUTOR_DIRS", str(os.getppid()))]

    at_once = spark.sparkContext.parallelize(range(2), 2).barrier()
    return sorted(set(at_once.mapPartitions(name).collect()))


def where(_: int) -> dict[str, Any]:
    """In a task: where lakelog is from, and which plugins are found there."""
    import lakelog
    from lakelog.registry.loading import installed_sources

    return {
        "file": lakelog.__file__,
        "plugins": sorted(each.name for each in installed_sources()),
    }


def landed(spark: SparkSession, store: Path, folder: Path, kinds: list[str]) -> dict[str, int]:
    """Rows that each kind of table got, by Spark's tasks."""
    sinks = {
        "spark_iceberg": spark_iceberg_sink(spark, "lake.rocketmq.messages"),
        "delta": sink_for(f"delta:{folder / 'delta'}"),
        "parquet": sink_for(f"parquet:{folder / 'parquet'}"),
    }
    rows = {}
    for name in kinds:
        (sink := sinks[name]).prepare()
        rows[name] = 0
        while (done := land(LandingSource(store, "S"), sink, by_spark(spark), SMALL)) is not None:
            rows[name] += done.rows
    assert spark.table("lake.rocketmq.messages").count() == rows["spark_iceberg"]
    return rows


if __name__ == "__main__":
    main()
