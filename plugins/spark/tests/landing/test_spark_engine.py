"""Tasks that Spark runs write what tasks here write, and Spark reads what others read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakelog_lake.errors import TaskFailed
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from lakelog_spark.engine import slots
from lakelog_spark.engine import spark as by_spark
from plugins.lake.tests.landing import program_runs as runs
from plugins.lake.tests.landing.passes import land
from plugins.lake.tests.landing.program import Orders
from plugins.lake.tests.landing.tables import SMALL, assert_exactly, keys_of, land_all, make
from plugins.lake.tests.stores import filled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    "kind",
    ["iceberg", *(pytest.param(each, marks=pytest.mark.slow) for each in ("delta", "parquet"))],
)
def test_spark_lands_all(kind: str, spark: SparkSession, store_path: Path, tmp_path: Path) -> None:
    engine, sink = by_spark(spark), make(kind, tmp_path / "t")
    while land(LandingSource(store_path, "S"), sink, engine, SMALL):
        pass
    assert_exactly(kind, tmp_path / "t", keys_of(store_path, "S"))


def test_a_pass_is_one_wave_of_tasks(spark: SparkSession, store_path: Path, tmp_path: Path) -> None:
    """However many ranges it has."""
    context = spark.sparkContext
    tracker = context.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    bounds = TaskLimits(task_bytes=4 << 10, file_bytes=4 << 10)
    landed = land(
        LandingSource(store_path, "S"), make("parquet", tmp_path / "t"), by_spark(spark), bounds
    )
    assert landed is not None
    assert landed.files > context.defaultParallelism
    (number,) = set(tracker.getJobIdsForGroup(None)) - before
    job = tracker.getJobInfo(number)
    assert job is not None
    stages = [tracker.getStageInfo(each) for each in job.stageIds]
    assert [each and each.numTasks for each in stages] == [context.defaultParallelism]
    assert_exactly("parquet", tmp_path / "t", keys_of(store_path, "S"))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", 2),
        ("dynamicAllocation.enabled=false dynamicAllocation.maxExecutors=9", 2),
        ("dynamicAllocation.enabled=true dynamicAllocation.maxExecutors=9", 9),
        ("dynamicAllocation.enabled=true dynamicAllocation.maxExecutors=9 executor.cores=4", 36),
        (
            "dynamicAllocation.enabled=true dynamicAllocation.maxExecutors=9 executor.cores=4 "
            "task.cpus=3",
            9,
        ),
        ("dynamicAllocation.enabled=true dynamicAllocation.maxExecutors=1", 2),
    ],
)
def test_a_wave_has_a_task_for_each_executor_that_may_come(settings: str, expected: int) -> None:
    given = dict(each.split("=") for each in settings.split())
    assert slots(lambda name: given.get(name.removeprefix("spark.")), 2) == expected


def test_without_a_most_executors_each_range_may_have_its_own() -> None:
    given = {"spark.dynamicAllocation.enabled": "true"}
    assert slots(given.get, 2) > 10_000
    given |= {"spark.dynamicAllocation.maxExecutors": "2", "spark.master": "spark://here:7077"}
    assert slots(given.get, 2) > 10_000  # an executor takes all cores of a worker


def test_damage_is_told_with_its_place(
    spark: SparkSession, store_path: Path, tmp_path: Path
) -> None:
    segment = min((store_path / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[4] ^= 0xFF
    segment.write_bytes(data)
    with pytest.raises(TaskFailed, match="offset 0"):
        land(
            LandingSource(store_path, "S"), make("parquet", tmp_path / "t"), by_spark(spark), SMALL
        )


def test_spark_counts_the_folder_of_a_table_as_others_do(
    spark: SparkSession, store_path: Path, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    land_all(LandingSource(store_path, "S"), make("parquet", table))
    filled(store_path, 200)
    assert runs.kill_at(Orders(store_path, "parquet", table, "written"))
    assert any(each.name.startswith(".") for each in (table / "data").iterdir())
    assert spark.read.parquet(str(table / "data")).count() == 300
    make("parquet", table)
    land_all(LandingSource(store_path, "S"), make("parquet", table))
    assert spark.read.parquet(str(table / "data")).count() == 500
