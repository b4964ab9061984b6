"""A real streaming query reads everything once, under each kind of trigger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakelog
from lakelog_spark.progress import lag, place_of
from plugins.lake.tests.stores import filled
from plugins.spark.tests.reading import offsets, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COUNT = 300


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(tmp_path / "store", COUNT)


def third(path: Path) -> str:
    with lakelog.open(path, mode="read") as opened:
        return str(opened.max_offset // 3)


def run(
    spark: SparkSession, store: Path, target: Path, given: dict[str, str], *, now: bool
) -> StreamingQuery:
    """A query that lands all there is in Parquet, and remembers in a folder beside it."""
    stream = spark.readStream.format("lakelog").options(**given).load(str(store))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{target}.state")
    triggered = (
        writer.trigger(availableNow=True) if now else writer.trigger(processingTime="0 seconds")
    )
    query = triggered.start(str(target))
    try:
        if now:
            assert query.awaitTermination(120)
        else:
            query.processAllAvailable()
    finally:
        query.stop()
    return query


def landed(spark: SparkSession, target: Path) -> list[int]:
    rows = spark.read.parquet(str(target)).orderBy("physical_offset").collect()
    return [row.physical_offset for row in rows]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (True, False),
        pytest.param(True, True, marks=pytest.mark.slow),
        pytest.param(False, False, marks=pytest.mark.slow),
    ],
)
def test_bounded_batches_go_on_after_a_restart(
    spark: SparkSession, store: Path, tmp_path: Path, *, first: bool, second: bool
) -> None:
    """Of queries that end with the backlog, or follow the store."""
    target = tmp_path / "table"
    most = third(store)
    for now in (first, second):
        given = {"max_bytes_per_batch": most}
        if now:
            given["max_rows_per_batch"] = str(COUNT // 3)
        else:
            given["trigger"] = "processing-time"
        query = run(spark, store, target, given, now=now)
        ends = [each["sources"][0]["endOffset"] for each in query.recentProgress]
        assert len(set(map(place_of, ends))) >= (1 if now else 3)
        assert lag(store, ends[-1]).bytes == 0
        assert landed(spark, target) == offsets(read(store))
        filled(store, COUNT)
