"""A streaming query reads beside producers while the log rolls: whole rows, each once, in order."""

from __future__ import annotations

import logging
import sys
import time
import zlib
from collections import defaultdict
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import lakelog
from lakelog_spark.progress import lag
from plugins.lake.tests.landing.tables import KEY, keys_in, keys_of
from plugins.spark.tests import live_producers
from plugins.spark.tests.live_producers import body_of
from tests.support.waiting import until
from tests.support.working import working

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_END_SECONDS = 150
_LEAST_BATCHES = 3
_LEAST_SEGMENTS = 4
_BATCH_BYTES = 1 << 20
_log = logging.getLogger(__name__)


def producing(store: Path) -> AbstractContextManager[list[str]]:
    """Producers in a process of their own, which stop cleanly at the end."""
    return working([sys.executable, live_producers.__file__, str(store)], _END_SECONDS)


def test_a_live_log_is_read_once_and_whole(spark: SparkSession, tmp_path: Path) -> None:
    read_live(spark, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_live_log_for_two_minutes(spark: SparkSession, tmp_path: Path) -> None:
    batches = read_live(spark, tmp_path, seconds=120)
    assert batches > 10


def read_live(spark: SparkSession, folder: Path, seconds: float = 0) -> int:
    """Read beside producers, then what is left; how many batches that took.

    At least so long, and until there were some batches and rolls.
    """
    store, target = folder / "s", folder / "t"
    with producing(store):
        query = start(spark, store, target, processingTime="0 seconds")
        time.sleep(seconds)
        until(lambda: count_in(target) >= _LEAST_BATCHES, seconds=_END_SECONDS)
        # One more may be prepared: a clean close removes it.
        until(lambda: count_in(store / "commitlog") > _LEAST_SEGMENTS + 1, seconds=_END_SECONDS)
        query.stop()
        assert query.exception() is None
    live = count_in(target)
    drain(spark, store, target)
    batches = in_order(target)
    check(batches, store)
    rolls = count_in(store / "commitlog") - 1
    rows = sum(each.num_rows for each in batches)
    _log.info("%d rows in %d batches, %d of them live; %d rolls", rows, len(batches), live, rolls)
    assert live >= _LEAST_BATCHES
    assert rolls >= _LEAST_SEGMENTS
    return live


def drain(spark: SparkSession, store: Path, target: Path) -> None:
    """Read what is left; a batch that was stopped takes a run of its own."""
    for _ in range(2):
        query = start(spark, store, target, availableNow=True)
        assert query.awaitTermination(_END_SECONDS)
        progress = query.lastProgress
        if progress is None or lag(store, progress["sources"][0]["endOffset"]).bytes == 0:
            return
    raise AssertionError("two runs did not read all")


def count_in(folder: Path) -> int:
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def start(spark: SparkSession, store: Path, target: Path, **trigger: Any) -> Any:
    """A query that writes each batch to a folder of its own, again if it comes again."""

    def land(frame: DataFrame, number: int) -> None:
        frame.write.mode("overwrite").parquet(str(target / f"{number:06d}"))

    given = {"max_bytes_per_batch": str(_BATCH_BYTES), "max_partition_bytes": str(_BATCH_BYTES)}
    if "processingTime" in trigger:
        given["trigger"] = "processing-time"
    stream = spark.readStream.format("lakelog").options(**given).load(str(store))
    writer = stream.writeStream.foreachBatch(land)
    return writer.option("checkpointLocation", f"{target}.state").trigger(**trigger).start()


def in_order(target: Path) -> list[pa.Table]:
    """The batches, in which files are in the order of the partitions."""
    found = []
    for folder in sorted(target.iterdir()):
        parts = [parquet.read_table(each) for each in sorted(folder.glob("*.parquet"))]
        if parts:
            found.append(pa.concat_tables(parts))
    return found


def check(batches: list[pa.Table], store: Path) -> None:
    table = pa.concat_tables(batches)
    with lakelog.open(store, mode="read") as opened:
        name = next(iter(set(table["store"].to_pylist())))
        assert opened.flushed_offset == opened.max_offset
    assert keys_in(table) == keys_of(store, name)
    queues = defaultdict(list)
    wanted = [*KEY, "keys", "body", "body_crc"]
    for row in table.select(wanted).to_pylist():
        whole(row)
        queues[row["topic"], row["queue_id"]].append(row["queue_offset"])
    for found in queues.values():
        assert found == list(range(len(found)))


def whole(row: dict[str, Any]) -> None:
    """Its body must be the one that its producer gave."""
    producer, number = int(row["topic"].removeprefix("topic-")), int(row["keys"][0])
    assert row["body"] == body_of(producer, number)
    assert row["body_crc"] & 0x7FFFFFFF == zlib.crc32(row["body"]) & 0x7FFFFFFF
    assert number % live_producers.QUEUES == row["queue_id"]
    assert number // live_producers.QUEUES == row["queue_offset"]
