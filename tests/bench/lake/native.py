"""Jobs of Spark alone: reads a store, Parquet or Kafka, and writes a table or nothing."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import lakelog_spark
from tests.bench.lake import kafkajars
from tests.bench.lake.job import WARM_ROWS, Job, timed
from tests.bench.model import Sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "bench"
_MEMORY: Final = "3g"


def run(job: Job) -> Sample:
    """Read all of ``job`` and write it."""
    begin = time.perf_counter()
    spark = started(job.cores, Path(job.folder, "warehouse"), kafka=job.by == "kafka")
    start = time.perf_counter() - begin
    try:
        _write(_warm(spark, job), job, "warm")
        sample = timed(job, lambda: _done(spark, job)) | {"start_s": start}
        rows = _rows(spark, job)
    finally:
        gc.collect()
        spark.stop()
    if rows != job.rows:
        raise RuntimeError(f"{rows} rows came out of {job.rows}")
    return sample


def started(cores: int, warehouse: Path, *, kafka: bool) -> SparkSession:
    """Return a session with both formats, and with Kafka's source if ``kafka``."""
    config = {}
    if kafka:
        config["spark.driver.extraClassPath"] = kafkajars.class_path()
    spark = lakelog_spark.session(
        warehouse, master=f"local[{cores}]", delta=True, driver_memory=_MEMORY, config=config
    )
    lakelog_spark.register(spark)
    return spark


def kafka_options(address: str) -> dict[str, str]:
    """Return the options of a reader of the whole topic."""
    return {"kafka.bootstrap.servers": address, "subscribe": TOPIC}


def _done(spark: SparkSession, job: Job) -> int:
    _write(_read(spark, job, job.source), job, "table")
    return job.rows


def _read(spark: SparkSession, job: Job, source: str) -> DataFrame:
    if job.by == "source":
        return spark.read.format("lakelog").load(source)
    if job.by == "parquet":
        return spark.read.parquet(source)
    return spark.read.format("kafka").options(**kafka_options(source)).load()


def _warm(spark: SparkSession, job: Job) -> DataFrame:
    if job.by != "kafka":
        return _read(spark, job, job.warm)
    few = '{"%s": {%s}}'
    ends = ", ".join(f'"{each}": {WARM_ROWS // 4}' for each in range(4))
    options = kafka_options(job.source) | {"endingOffsets": few % (TOPIC, ends)}
    return spark.read.format("kafka").options(**options).load()


def _write(frame: DataFrame, job: Job, name: str) -> None:
    if job.sink == "noop":
        frame.write.format("noop").mode("overwrite").save()
    elif job.sink == "parquet":
        frame.write.option("compression", "zstd").parquet(_folder(job, name))
    elif job.sink == "delta":
        frame.write.format("delta").save(_folder(job, name))
    else:
        frame.writeTo(f"lake.rocketmq.{name}").using("iceberg").create()


def _folder(job: Job, name: str) -> str:
    return str(Path(job.folder, name))


def _rows(spark: SparkSession, job: Job) -> int:
    """Return the number of rows in the table, or the expected one for a sink without a table."""
    if job.sink == "noop":
        return job.rows
    if job.sink == "iceberg":
        return spark.table("lake.rocketmq.table").count()
    return spark.read.format(job.sink).load(_folder(job, "table")).count()
