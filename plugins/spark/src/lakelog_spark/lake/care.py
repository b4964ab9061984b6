"""Compaction and expiry, by the kind that a table is of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog_spark.fitting import need_spark
from lakelog_spark.lake import deltacare, icebergcare, parquetcare
from lakelog_spark.lake.anytable import LandedTable
from lakelog_spark.lake.careterms import Compacted, Expired, Retention
from lakelog_spark.lake.folders import DeltaRows, ParquetRows
from lakelog_spark.lake.icebergrows import IcebergRows
from lakelog_spark.lake.opened import all_opened
from lakelog_spark.landing.targets import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compacted(
    to: str, table: str | None, target_bytes: int, master: str | None
) -> list[tuple[str, Compacted]]:
    """Compact the table ``KIND:PATH``, or all that it means, and their dead letters; by name.

    Raises :class:`~lakelog_spark.lake.errors.CareError`, and for Iceberg
    :class:`~lakelog_spark.errors.NoJava`.
    """
    done: list[tuple[str, Compacted]] = []
    iceberg: list[IcebergRows] = []
    for each in _tables(to, table):
        if isinstance(each, ParquetRows):
            done.append((each.name, parquetcare.compact(each.sink, target_bytes)))
        elif isinstance(each, DeltaRows):
            done.append((each.name, deltacare.compact(each.sink, target_bytes)))
        elif isinstance(each, IcebergRows):
            iceberg.append(each)
    if iceberg:
        with spark_session(Place.of(to).path, master) as spark:
            done += [
                (rows.name, icebergcare.compact(rows.sink, target_bytes, spark)) for rows in iceberg
            ]
    return done


def expired(to: str, table: str | None, retention: Retention) -> list[tuple[str, Expired]]:
    """Expire likewise; raises :class:`~lakelog_spark.lake.errors.CareError`."""
    done = []
    for each in _tables(to, table):
        if isinstance(each, ParquetRows):
            done.append((each.name, parquetcare.expire(each.sink, retention)))
        elif isinstance(each, DeltaRows):
            done.append((each.name, deltacare.expire(each.sink, retention)))
        elif isinstance(each, IcebergRows):
            done.append((each.name, icebergcare.expire(each.sink, retention)))
    return done


def _tables(to: str, table: str | None) -> list[LandedTable]:
    return [each for found in all_opened(to, table) for each in found.each]


@contextmanager
def spark_session(warehouse: Path | None, master: str | None) -> Iterator[SparkSession]:
    """The session that is there, or one that ends with the block."""
    need_spark()
    from pyspark.sql import SparkSession

    from lakelog_spark.local import session

    there = SparkSession.getActiveSession()
    started = session(warehouse, master=master)
    try:
        yield started
    finally:
        if there is None:
            started.stop()
