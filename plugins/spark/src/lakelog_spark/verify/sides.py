"""The two sides of a comparison as Spark frames: the table's rows, and the log's records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakelog_lake.log.system_topics import is_system_topic
from lakelog_lake.readback.landed_table import DataFile
from lakelog_lake.verify.comparing import VerifiableEnds
from lakelog_lake.verify.verify import LogBounds, VerifyRequest
from lakelog_spark.verify.facts import facts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_rows(asked: VerifyRequest, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
    """The rows of the store, from the table's data files.

    Raises :class:`~lakelog_lake.errors.NeedsEngine`.
    """
    from pyspark.sql import functions as f

    alike: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for path, constants in asked.table.data_files():
        alike.setdefault(repr(constants), (dict(constants), []))[1].append(path)
    parts = [_files(spark, paths, constants) for constants, paths in alike.values()]
    if not parts:
        parts = [spark.createDataFrame([], _schema(columns))]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part, allowMissingColumns=True)
    return whole.where(f.col("store") == asked.store).select(*columns)


def before_end(rows: DataFrame, limits: VerifiableEnds) -> DataFrame:
    """The rows without those that landed while files were listed; an offset may be null."""
    from pyspark.sql import functions as f

    at = f.col("physical_offset")
    return rows.where(~f.coalesce((at >= limits.end) & (at < limits.landed), f.lit(False)))


def _schema(columns: Sequence[str]) -> str:
    from lakelog_lake.log.columns import TYPES

    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def _files(spark: SparkSession, paths: Sequence[DataFile | str], constants: Any) -> DataFrame:
    from pyspark.sql import functions as f

    found = spark.read.option("recursiveFileLookup", "true").parquet(*map(_escaped, paths))
    for name, value in constants.items():
        found = found.withColumn(name, f.lit(value))
    return found


def _escaped(path: Any) -> str:
    """Escape characters that Spark reads as a glob pattern."""
    text = str(path)
    return "".join(f"\\{each}" if each in "[]{}*?\\" else each for each in text)


def log_facts(
    asked: VerifyRequest,
    spark: SparkSession,
    table: DataFrame,
    log: LogBounds,
    limits: VerifiableEnds,
    columns: Sequence[str],
) -> DataFrame:
    """The compared values of the log's records that should be rows of the table, and its damage.

    The column ``damaged_bytes`` is the length of a damaged range that begins at ``at``; it is null
    for a record. With topics chosen, ranges are only read around the records of their queues.
    """
    from pyspark.sql import functions as f

    end = min(limits.end, log.end)
    if end <= limits.low:
        none = f.lit(None).cast("int").alias("damaged_bytes")
        return facts_of(spark.createDataFrame([], _schema(columns)), columns, none)
    system = asked.chosen.system_topics or any(
        is_system_topic(row[0]) for row in table.select("topic").distinct().collect()
    )
    options = {
        "store_id": asked.store,
        "start": json.dumps({"offset": limits.low}),
        "end": json.dumps({"offset": end}),
        "until": "readable",
        "corrupt": "collect",
        "system_topics": str(system).lower(),
    }
    if asked.chosen.topics is not None:
        options["topics"] = ",".join(sorted(asked.chosen.topics))
    found = spark.read.format("lakelog").options(**options).load(str(asked.path))
    damaged = f.when(f.col("topic").isNull(), f.col("store_size")).alias("damaged_bytes")
    return facts_of(found, columns, damaged)
