"""A streaming query lands a store exactly once, though its driver is killed by SIGKILL."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import lakelog_spark
from lakelog.errors import SettingsError
from lakelog_lake.tables.settings import Resume
from plugins.lake.tests.landing import program_runs as runs
from plugins.lake.tests.landing.tables import assert_exactly, keys_in, keys_of, read
from plugins.lake.tests.stores import filled
from plugins.spark.tests.landing import program_stream
from plugins.spark.tests.landing.test_kill_spark import Driver, driver_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = int(os.environ.get("STREAM_ROUNDS", "8"))
_START_SECONDS = 240
_log = logging.getLogger(__name__)


def orders(kind: str, folder: Path, *, hold: bool) -> dict[str, object]:
    return {
        "store": str(folder / "s"),
        "to": f"{kind}:{folder / 't'}",
        "checkpoint": str(folder / "c"),
        "hold": hold,
    }


def querying(kind: str, folder: Path, *, hold: bool) -> AbstractContextManager[Driver]:
    return driver_of("program_stream", folder, orders(kind, folder, hold=hold))


def kill(driver: Driver) -> None:
    """Its JVM ends with it."""
    jvm = driver.jvm
    os.kill(driver.process.pid, signal.SIGKILL)
    driver.process.wait(_START_SECONDS)
    until(lambda: not Path(f"/proc/{jvm}").exists(), "the JVM stays", seconds=_START_SECONDS)


def finish(kind: str, folder: Path) -> int:
    """Another run of the same query lands what is left; all is there once."""
    with querying(kind, folder, hold=False) as driver:
        driver.hear("done c")
        assert driver.process.wait(_START_SECONDS) == 0
    expected = keys_of(folder / "s", "S")
    assert_exactly(kind, folder / "t", expected)
    return len(expected)


def test_a_batch_that_landed_and_is_not_in_the_checkpoint_lands_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    filled(tmp_path / "s", 300)
    with querying("parquet", tmp_path, hold=True) as driver:
        driver.hear("landed")
        kill(driver)
    assert (tmp_path / "c" / "offsets" / "0").exists()
    assert not (tmp_path / "c" / "commits" / "0").exists()
    assert len(keys_in(read("parquet", tmp_path / "t"))) == 300
    filled(tmp_path / "s", 50)
    program_stream.start(spark, orders("parquet", tmp_path, hold=False)).awaitTermination()
    assert_exactly("parquet", tmp_path / "t", keys_of(tmp_path / "s", "S"))
    assert (tmp_path / "c" / "commits" / "0").exists()


@pytest.mark.java
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200 + 100 * ROUNDS)
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_drivers_of_queries_are_killed(kind: str, tmp_path: Path) -> None:
    places = ["planned", "written", "committed", "landed"]
    with runs.producing(tmp_path / "s"):
        for number in range(ROUNDS):
            with querying(kind, tmp_path, hold=True) as driver:
                driver.hear(places[number % len(places)])
                time.sleep(random.uniform(0, 0.2))
                kill(driver)
    _log.info("%s: %d drivers killed; %d rows", kind, ROUNDS, finish(kind, tmp_path))


def test_a_stream_that_was_changed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path, to = tmp_path / "s", f"parquet:{tmp_path / 't'}"
    given: dict[str, Any] = {"to": to, "store_id": "S"}

    def query(changed: str | None = None) -> None:
        stream = spark.readStream.format("lakelog").load(str(path))
        stream = stream.selectExpr(changed) if changed else stream
        writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "c"))
        landing = writer.foreachBatch(lakelog_spark.lander(path, **given))
        landing.trigger(availableNow=True).start().awaitTermination()

    filled(path, 60)
    query()
    assert_exactly("parquet", tmp_path / "t", keys_of(path, "S"))
    filled(path, 60)
    with pytest.raises(StreamingQueryException, match="has other columns than the store"):
        query("upper(topic) AS shouted")
    assert len(keys_in(read("parquet", tmp_path / "t"))) == 60


def test_what_counts_in_a_table_without_a_position_is_an_option(tmp_path: Path) -> None:
    filled(tmp_path / "s", 1)
    to = f"delta:{tmp_path / 't'}"
    assert lakelog_spark.lander(tmp_path / "s", to=to, resume="rows").spec.resume is Resume.ROWS
    assert lakelog_spark.lander(tmp_path / "s", to=to).spec.resume is None
    with pytest.raises(SettingsError, match="'row' is not one of position, rows"):
        lakelog_spark.lander(tmp_path / "s", to=to, resume="row")
