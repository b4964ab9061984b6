"""Compaction and expiry for each kind of table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lakelog_lake.engine_provider import provider
from lakelog_lake.errors import TableMaintenanceError
from lakelog_lake.maintenance import delta as delta_maintenance
from lakelog_lake.maintenance import iceberg as iceberg_maintenance
from lakelog_lake.maintenance import parquet as parquet_maintenance
from lakelog_lake.maintenance.terms import Compacted, Expired, RetentionTerms
from lakelog_lake.sinks.locations import IcebergLocation, location_of
from lakelog_lake.verify.landed_table import DeltaRows, IcebergRows, LandedTable, ParquetRows
from lakelog_lake.verify.open import all_opened


def compact(
    to: str,
    table: str | None,
    target_bytes: int,
    master: str | None,
    storage: Mapping[str, str] | None = None,
) -> list[tuple[str, Compacted]]:
    """Compact the tables of ``KIND:PATH`` and their dead letters; return the results by table name.

    Raises :class:`~lakelog_lake.errors.TableMaintenanceError`, and for Iceberg, which needs Spark,
    :class:`~lakelog.errors.SettingsError` without lakelog-spark.
    """
    done: list[tuple[str, Compacted]] = []
    iceberg: list[IcebergRows] = []
    for each in _tables(to, table, storage):
        if isinstance(each, ParquetRows):
            done.append((each.name, parquet_maintenance.compact(each.sink, target_bytes)))
        elif isinstance(each, DeltaRows):
            done.append((each.name, delta_maintenance.compact(each.sink, target_bytes)))
        elif isinstance(each, IcebergRows):
            iceberg.append(each)
    if iceberg:
        place = location_of(to, storage)
        warehouse = place.path if isinstance(place, IcebergLocation) else None
        if not isinstance(warehouse, Path):
            raise TableMaintenanceError(
                f"{to} must be compacted through its catalog, for example in Spark by CALL "
                "CATALOG.system.rewrite_data_files(table => 'NAMESPACE.TABLE')"
            )
        sinks = [each.sink for each in iceberg]
        compacted = provider("spark").compacted(warehouse, sinks, target_bytes, master)
        done += zip((each.name for each in iceberg), compacted, strict=True)
    return done


def expire(
    to: str, table: str | None, retention: RetentionTerms, storage: Mapping[str, str] | None = None
) -> list[tuple[str, Expired]]:
    """Expire the tables of ``KIND:PATH`` and their dead letters; return the results by table name.

    Raises :class:`~lakelog_lake.errors.TableMaintenanceError`.
    """
    done = []
    for each in _tables(to, table, storage):
        if isinstance(each, ParquetRows):
            done.append((each.name, parquet_maintenance.expire(each.sink, retention)))
        elif isinstance(each, DeltaRows):
            done.append((each.name, delta_maintenance.expire(each.sink, retention)))
        elif isinstance(each, IcebergRows):
            done.append((each.name, iceberg_maintenance.expire(each.sink, retention)))
    return done


def _tables(to: str, table: str | None, storage: Mapping[str, str] | None) -> list[LandedTable]:
    return [each for found in all_opened(to, table, storage=storage) for each in found.each]
