"""Locations ``spark:CATALOG``: the Iceberg tables of a catalog of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import attrs

from lakelog.errors import SettingsError
from lakelog_lake.sinks.base import Sink
from lakelog_lake.sinks.locations import TableLocation
from lakelog_lake.tables.shape import TableShape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Final = "spark:"
"""The prefix of such locations."""


def catalog_in(to: str) -> str | None:
    """The catalog of ``spark:CATALOG``; ``None`` for any other location.

    Raises :class:`~lakelog.errors.SettingsError` for an invalid name.
    """
    if not to.startswith(SPARK):
        return None
    catalog = to.removeprefix(SPARK)
    if not catalog or not catalog.replace("_", "a").isalnum():
        raise SettingsError(f"{to!r} is not {SPARK}CATALOG with a catalog of Spark", key="--to")
    return catalog


@attrs.frozen
class SparkCatalogLocation(TableLocation):
    """The tables of one catalog; each has a name, ``NAMESPACE.TABLE``."""

    session: SparkSession
    catalog: str
    kind: ClassVar[str] = "iceberg"

    @property
    def text(self) -> str:
        """The location as text."""
        return f"{SPARK}{self.catalog}"

    def table(self, given: str | None) -> str:
        """The name of the table, or a template; raises :class:`~lakelog.errors.SettingsError`."""
        if given is None or "." not in given.strip("."):
            raise SettingsError(f"{self.text} needs NAMESPACE.TABLE, not {given}", key="--table")
        return given

    def sink(self, name: str, shape: TableShape) -> Sink:
        """The sink of a table, which may not exist yet."""
        from lakelog_spark.catalog.iceberg import spark_iceberg_sink

        return spark_iceberg_sink(self.session, f"{self.catalog}.{name}", shape)

    def beside(self, name: str) -> list[str]:
        """The last part of the names of all tables in the namespace of the table ``name``."""
        namespace = f"`{self.catalog}`.`{name.rpartition('.')[0].replace('.', '`.`')}`"
        self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        found = self.session.sql(f"SHOW TABLES IN {namespace}").collect()
        return sorted(str(each["tableName"]) for each in found)
