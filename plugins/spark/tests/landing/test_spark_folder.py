"""Spark reads the folder of a Parquet table as others do: see the tests of lakelog-lake."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from lakelog_lake.landing.dispatcher import LandingSource
from plugins.lake.tests.landing import program_runs as runs
from plugins.lake.tests.landing.program import Orders
from plugins.lake.tests.landing.tables import land_all, make
from plugins.lake.tests.stores import filled


def test_spark_counts_the_same(spark: SparkSession, store_path: Path, tmp_path: Path) -> None:
    table = tmp_path / "t"
    land_all(LandingSource(store_path, "S"), make("parquet", table))
    filled(store_path, 200)
    assert runs.kill_at(Orders(store_path, "parquet", table, "written"))
    assert any(each.name.startswith(".") for each in (table / "data").iterdir())
    assert spark.read.parquet(str(table / "data")).count() == 300
    make("parquet", table)
    land_all(LandingSource(store_path, "S"), make("parquet", table))
    assert spark.read.parquet(str(table / "data")).count() == 500
