"""The data source ``lakelog``, also under the name ``rocketmq``: a batch reader.

Spark makes these objects in processes of its own, and sends them to its executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import lakelog
from lakelog.errors import SettingsError
from lakelog_spark.columns import DDL, NAMES
from lakelog_spark.options import ReadOptions
from lakelog_spark.plan import LogRange, plan
from lakelog_spark.rows import rows, store_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class LakelogReader(DataSourceReader):
    """Reads one store; its end is looked up once, so that one read sees one state of the log."""

    def __init__(self, options: ReadOptions) -> None:
        with lakelog.open(options.path, mode="read") as store:
            self._ranges = plan(store, options.until)
        self._options = options
        self._name = store_name(options.path)

    def partitions(self) -> list[LogRange]:
        """One per segment."""
        return self._ranges

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Rows of one segment; an empty store is one partition ``None``."""
        if isinstance(partition, LogRange):
            yield from rows(self._options, self._name, partition)


class LakelogSource(DataSource):
    """``spark.read.format("lakelog").load("STORE")``."""

    @classmethod
    def name(cls) -> str:
        """Its short name."""
        return "lakelog"

    def schema(self) -> str:
        """The same for every store; refuses wrong options, which Spark shows at ``load``."""
        ReadOptions.of(self.options)
        return DDL

    def reader(self, schema: StructType) -> LakelogReader:
        """Look at the store as it is now."""
        if schema.fieldNames() != list(NAMES):
            raise SettingsError("the columns are given by the source: leave out .schema(...)")
        return LakelogReader(ReadOptions.of(self.options))


class RocketMQSource(LakelogSource):
    """The same under the name of those who wrote most such directories."""

    @classmethod
    def name(cls) -> str:
        """Its short name."""
        return "rocketmq"


def register(spark: SparkSession) -> None:
    """Make the formats ``lakelog`` and ``rocketmq`` known to a session."""
    for source in (LakelogSource, RocketMQSource):
        spark.dataSource.register(source)
