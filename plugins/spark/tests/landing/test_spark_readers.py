"""Spark counts the rows of a landed table right by each column, and reads it as a stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakelog import Message
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.tables import TABLE, land_all, land_one, make, read
from plugins.lake.tests.landing.test_other_readers import TOPICS, asked_of, by_arrow
from plugins.lake.tests.stores import filled, open_small
from plugins.spark.tests.conftest import warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
COMMITS = 110


def test_spark_agrees_by_each_column(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions

    path = warehouse_of(spark)
    store = filled(tmp_path / "s", 30)
    with open_small(store) as opened:
        opened.put_batch([Message(topic, b"1", queue_id=0) for topic in TOPICS])
    land_all(LandingSource(store, "S"), make("iceberg", path))
    try:
        rows, frame = read("iceberg", path), spark.table(f"lake.{TABLE}")
        right = by_arrow(rows)

        def count(name: str, how: str, value: Any) -> int:
            column = functions.col(name)
            found: dict[str, Callable[[], Any]] = {
                "IS NULL": column.isNull,
                "IS NOT NULL": column.isNotNull,
                "=": lambda: column == functions.lit(value),
                ">=": lambda: column >= functions.lit(value),
            }
            return frame.where(found[how]()).count()

        for each in asked_of(rows):
            assert count(*each) == right(*each), each
    finally:
        spark.sql(f"DROP TABLE IF EXISTS lake.{TABLE} PURGE")


def test_a_stream_that_stopped_reads_on_after_many_commits(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It needs the snapshot at which it stopped, which a history of 100 versions expires."""
    warehouse = warehouse_of(spark)
    store = filled(tmp_path / "s", 1)
    source = LandingSource(store, "S")
    few = TaskLimits(pass_bytes=1, task_bytes=1)
    try:
        land_all(source, make("iceberg", warehouse))

        def run() -> int:
            rows = spark.readStream.format("iceberg").load(f"lake.{TABLE}")
            writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            writer.trigger(availableNow=True).start().awaitTermination()
            return spark.read.parquet(str(tmp_path / "out")).count()

        assert run() == 1
        filled(store, COMMITS)
        sink = make("iceberg", warehouse)
        for _ in range(COMMITS):
            assert land_one(source, sink, few).rows == 1
        assert run() == 1 + COMMITS
    finally:
        spark.sql(f"DROP TABLE IF EXISTS lake.{TABLE} PURGE")
