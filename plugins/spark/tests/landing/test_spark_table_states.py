"""Iceberg, Delta and Parquet tables as others leave them, where Spark runs the tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakelog_spark.engine import spark as by_spark
from plugins.lake.tests.landing.delta_states import DELTA
from plugins.lake.tests.landing.iceberg_states import ICEBERG
from plugins.lake.tests.landing.lake_tables import LakeTables
from plugins.lake.tests.landing.parquet_states import PARQUET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = 2
"""So many states of each format are tried by default; the others are slow."""


@pytest.fixture(autouse=True)
def engine(spark: SparkSession) -> None:
    """Tasks run in Spark."""
    LakeTables.engine = staticmethod(by_spark(spark))


@pytest.mark.sample(SAMPLE)
class TestIcebergBySpark(LakeTables):
    kind = "iceberg"
    states = ICEBERG


@pytest.mark.sample(SAMPLE)
class TestDeltaBySpark(LakeTables):
    kind = "delta"
    states = DELTA


@pytest.mark.sample(SAMPLE)
class TestParquetBySpark(LakeTables):
    kind = "parquet"
    states = PARQUET
