"""Jobs of Spark alone: reads a store, Parquet or Kafka, and writes a table or nothing.

Its Kafka source is four jars, by Maven, or from a folder that a variable names.
"""

from __future__ import annotations

import gc
import json
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.bench.lake.job import WARM_ROWS, Job, timed
from tests.bench.model import CannotRunError, Sample
from tests.support import maven

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "bench"
VARIABLE: Final = "BENCH_KAFKA_JARS"
"""Names a folder of jars, for a machine whose Maven repository lacks one of them."""
_MISSING: Final = re.compile(r"Could not find artifact \S+|\S+ was not found")
_POM: Final = Path(__file__).parent / "pom.xml"


def run(job: Job) -> Sample:
    """Read all of ``job`` and write it."""
    begin = time.perf_counter()
    spark = started(job.cores, Path(job.folder, "warehouse"), kafka=job.by == "kafka")
    start = time.perf_counter() - begin
    try:
        _write(_warm(spark, job), job, "warm")

        def work() -> int:
            _write(_read(spark, job, job.source), job, "table")
            return job.rows

        sample = timed(job, work) | {"start_s": start}
        rows = _rows(spark, job)
    finally:
        gc.collect()
        spark.stop()
    if rows != job.rows:
        raise RuntimeError(f"{rows} rows came out of {job.rows}")
    return sample


def started(cores: int, warehouse: Path, *, kafka: bool) -> SparkSession:
    """Return a session with both formats, and with Kafka's source if ``kafka``."""
    import lakelog_spark

    config = {}
    if kafka:
        config["spark.driver.extraClassPath"] = class_path()
    spark = lakelog_spark.session(
        warehouse, master=f"local[{cores}]", delta=True, driver_memory="3g", config=config
    )
    lakelog_spark.register(spark)
    return spark


def class_path() -> str:
    """Return the class path of Spark's Kafka source; raises CannotRunError."""
    given = os.environ.get(VARIABLE)
    try:
        folder = maven.jars(_POM) if given is None else Path(given)
    except FileNotFoundError as error:
        raise CannotRunError("Spark's Kafka source needs Maven") from error
    except RuntimeError as error:
        reason = _MISSING.search(str(error))
        what = reason[0] if reason else str(error).splitlines()[0]
        raise CannotRunError(f"Spark's Kafka source: {what} (or give {VARIABLE})") from error
    return os.pathsep.join(str(each) for each in sorted(folder.glob("*.jar")))


def kafka_options(address: str) -> dict[str, str]:
    """Return the options of a reader of the whole topic."""
    return {"kafka.bootstrap.servers": address, "subscribe": TOPIC}


def _read(spark: SparkSession, job: Job, source: str) -> DataFrame:
    if job.by == "source":
        return spark.read.format("lakelog").load(source)
    if job.by == "parquet":
        return spark.read.parquet(source)
    return spark.read.format("kafka").options(**kafka_options(source)).load()


def _warm(spark: SparkSession, job: Job) -> DataFrame:
    if job.by != "kafka":
        return _read(spark, job, job.warm)
    ends = {TOPIC: {str(each): WARM_ROWS // 4 for each in range(4)}}
    options = kafka_options(job.source) | {"endingOffsets": json.dumps(ends)}
    return spark.read.format("kafka").options(**options).load()


def _write(frame: DataFrame, job: Job, name: str) -> None:
    if job.sink == "noop":
        frame.write.format("noop").mode("overwrite").save()
    elif job.sink == "parquet":
        frame.write.option("compression", "zstd").parquet(str(Path(job.folder, name)))
    elif job.sink == "delta":
        frame.write.format("delta").save(str(Path(job.folder, name)))
    else:
        frame.writeTo(f"lake.rocketmq.{name}").using("iceberg").create()


def _rows(spark: SparkSession, job: Job) -> int:
    """Return the number of rows in the table, or the expected one for a sink without a table."""
    if job.sink == "noop":
        return job.rows
    if job.sink == "iceberg":
        return spark.table("lake.rocketmq.table").count()
    return spark.read.format(job.sink).load(str(Path(job.folder, "table"))).count()
