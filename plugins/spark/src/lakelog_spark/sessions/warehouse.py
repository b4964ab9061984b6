"""The Spark configuration for tables: the Iceberg catalog ``lake``, and Delta.

The catalog is a file in the warehouse. pyiceberg opens it, too, under the same name
(:func:`lakelog_lake.sinks.iceberg.sqlite_catalog`), so that both have the same tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from lakelog_lake.errors import WrongSpark
from lakelog_lake.sinks.iceberg import CATALOG, CATALOG_FILE
from lakelog_spark.sessions.package import DELTA, DELTA_JAR, ICEBERG, ICEBERG_JAR, Package
from lakelog_spark.sessions.versions import check_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Config: TypeAlias = "dict[str, bool | float | int | str | None]"

NAMESPACE: Final = "rocketmq"
"""The namespace that each warehouse has from the start, for tables ``lake.rocketmq.TABLE``."""
_LAKE: Final = f"spark.sql.catalog.{CATALOG}"
_WAIT_MS: Final = 30_000  # for the lock of the SQLite catalog
_ICEBERG_EXTENSION: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_DELTA_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"


def lake(warehouse: Path) -> Config:
    """The configuration of the catalog."""
    place = warehouse.absolute()
    return {
        _LAKE: "org.apache.iceberg.spark.SparkCatalog",
        f"{_LAKE}.type": "jdbc",
        f"{_LAKE}.uri": f"jdbc:sqlite:{place / CATALOG_FILE}",
        f"{_LAKE}.jdbc.busy_timeout": str(_WAIT_MS),
        f"{_LAKE}.jdbc.schema-version": "V1",
        f"{_LAKE}.warehouse": f"file://{place}",
        f"{_LAKE}.cache-enabled": "false",  # a cache would miss commits of other processes
    }


def delta_catalog() -> Config:
    """Configuration for Delta tables by path and name, with few tasks for small tables."""
    return {
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    }


def tables(warehouse: Path | None, wanted: Sequence[Package]) -> Config:
    """Configuration for a new session with the packages ``wanted``."""
    config: Config = {}
    extensions = []
    if ICEBERG in wanted:
        extensions.append(_ICEBERG_EXTENSION)
    if warehouse is not None:
        config |= lake(warehouse) | {"spark.sql.warehouse.dir": f"file://{warehouse.absolute()}"}
    if DELTA in wanted:
        extensions.append(_DELTA_EXTENSION)
        config |= delta_catalog()
    return config | ({"spark.sql.extensions": ",".join(extensions)} if extensions else {})


def add_tables(session: SparkSession, warehouse: Path | None, *, delta: bool) -> None:
    """Add Iceberg's catalog and Delta to a running session.

    Raises :class:`~lakelog_lake.errors.WrongSpark` if the session does not allow it.
    """
    if warehouse is not None:
        check_jar(session, ICEBERG_JAR)
        _add_lake(session, lake(warehouse))
    if delta:
        check_jar(session, DELTA_JAR)
        _check_extension(session, _DELTA_EXTENSION)


def _add_lake(session: SparkSession, config: Config) -> None:
    place = f"{_LAKE}.warehouse"
    there, wanted = session.conf.get(_LAKE, None), str(config[place])
    if there is None:
        for name, value in config.items():
            session.conf.set(name, str(value))
    elif session.conf.get(place, None) != wanted:
        raise WrongSpark(
            f"this Spark session has a catalog {CATALOG} already, of "
            f"{session.conf.get(place, None)}, and {wanted} is wanted: stop it first"
        )


def _check_extension(session: SparkSession, name: str) -> None:
    if name not in _listed(session.conf.get("spark.sql.extensions", None)):
        raise WrongSpark(
            f"this Spark session was started without {name} in spark.sql.extensions, and cannot "
            "add any: stop it, or start it with lakelog_spark.session(delta=True)"
        )


def _listed(text: str | None) -> Sequence[str]:
    return [] if text is None else [each.strip() for each in text.split(",")]


def make_namespace(session: SparkSession, warehouse: Path) -> None:
    """Create the warehouse, and :data:`NAMESPACE` in it."""
    warehouse.mkdir(parents=True, exist_ok=True)
    session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")
