"""Where tables are that a catalog of Spark knows: ``spark:CATALOG``, all of them Iceberg's."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import attrs

from lakelog.errors import SettingsError
from lakelog_lake.sinks.base import Markable
from lakelog_lake.tables.fields import TableShape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Final = "spark:"
"""What such a place begins with."""


def catalog_in(to: str) -> str | None:
    """The catalog that ``spark:CATALOG`` means; ``None`` for any other place."""
    if not to.startswith(SPARK):
        return None
    catalog = to.removeprefix(SPARK)
    if not catalog or not catalog.replace("_", "a").isalnum():
        raise SettingsError(f"{to!r} is not {SPARK}CATALOG with a catalog of Spark", key="--to")
    return catalog


@attrs.frozen
class SparkPlace:
    """The tables of one catalog; each has a name, ``NAMESPACE.TABLE``."""

    session: SparkSession
    catalog: str
    kind: ClassVar[str] = "iceberg"

    @property
    def text(self) -> str:
        """As it is asked for."""
        return f"{SPARK}{self.catalog}"

    def table(self, given: str | None) -> str:
        """The name of the table, or a template; raises :class:`~lakelog.errors.SettingsError`."""
        if given is None or "." not in given.strip("."):
            raise SettingsError(
                f"{self.text} needs NAMESPACE.TABLE, and not {given}", key="--table"
            )
        return given

    def sink(self, name: str, shape: TableShape) -> Markable:
        """A table, which may not be there yet."""
        from lakelog_spark.catalog.iceberg import spark_iceberg_sink

        return spark_iceberg_sink(self.session, f"{self.catalog}.{name}", shape)

    def beside(self, name: str) -> list[str]:
        """The last part of the name of each table where the table ``name`` is."""
        namespace = f"`{self.catalog}`.`{name.rpartition('.')[0].replace('.', '`.`')}`"
        self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        found = self.session.sql(f"SHOW TABLES IN {namespace}").collect()
        return sorted(str(each["tableName"]) for each in found)
