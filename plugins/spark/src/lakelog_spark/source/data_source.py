"""The data source ``lakelog``, also under the name ``rocketmq``: batch and streaming.

Spark makes these objects in processes of its own, and sends them to its executors.

The reader takes no filters from Spark. Spark 4.1 keeps one reader for the whole frame that was
loaded: once the filters of a query had narrowed it, another query of that frame, or the other side
of a union, would silently read no more than the first one asked for. Instead,
:mod:`lakelog_spark.where` narrows a frame of its own for each call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import lakelog
from lakelog.errors import SettingsError
from lakelog_lake.errors import OtherStore
from lakelog_lake.log.columns import store_name
from lakelog_lake.reading.options import LATEST, ReadOptions, ddl_of, names_of
from lakelog_lake.reading.plan import plan
from lakelog_lake.reading.rows import rows
from lakelog_spark.sessions.shipping import forget_importers
from lakelog_spark.source.streaming import LakelogStreamReader
from lakelog_spark.writing.options import WriteOptions
from lakelog_spark.writing.stream_writer import LakelogStreamWriter
from lakelog_spark.writing.writer import LakelogWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class LakelogReader(DataSourceReader):
    """Reads one store; its end is looked up once, so that one read sees one state of the log."""

    def __init__(self, options: ReadOptions) -> None:
        if options.start.word == LATEST:
            raise SettingsError("start=latest is for streaming queries", key="start")
        with lakelog.open(options.path, mode="read"):  # what is no store is told at once
            self._name = options.store_id or store_name(options.path)
        if options.start.store not in (None, self._name):
            raise OtherStore(options.path, str(options.start.store), self._name)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Runs of records; called once per query."""
        with lakelog.open(self._options.path, mode="read") as store:
            return [InputPartition(each) for each in plan(store, self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one run; where there are none Spark gives one partition ``None``."""
        if partition is not None:
            forget_importers()
            yield from rows(self._options, self._name, partition.value)


class LakelogSource(DataSource):
    """``spark.read.format("lakelog").load("STORE")``."""

    @classmethod
    def name(cls) -> str:
        """Its short name."""
        return "lakelog"

    def schema(self) -> str:
        """Depends on ``include`` and ``corrupt`` only; refuses wrong options, at ``load``."""
        return ddl_of(ReadOptions.of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Look at the store, or its archive, as it is now."""
        options = self._checked(schema)
        if options.archive is not None:
            from lakelog_spark.archived import ArchivedReader

            return ArchivedReader(options, options.archive)
        return LakelogReader(options)

    def streamReader(self, schema: StructType) -> LakelogStreamReader:  # noqa: N802  # Spark's name
        """Follow the store."""
        options = self._checked(schema)
        if options.archive is not None:
            raise SettingsError(f"{options.archive} is an archive: read it in a batch", key="path")
        return LakelogStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> LakelogWriter:
        """Append rows to the store, as its owner or beside it."""
        return LakelogWriter(schema, WriteOptions.of(self.options), overwrite=overwrite)

    def streamWriter(  # noqa: N802  # Spark's name
        self, schema: StructType, overwrite: bool
    ) -> LakelogStreamWriter:
        """Append the rows of a streaming query to the store, each micro-batch once."""
        options, checkpoint = WriteOptions.of_stream(self.options)
        return LakelogStreamWriter(schema, options, checkpoint, overwrite=overwrite)

    def _checked(self, schema: StructType) -> ReadOptions:
        options = ReadOptions.of(self.options)
        if schema.fieldNames() != list(names_of(options)):
            raise SettingsError("the columns are given by the source: leave out .schema(...)")
        return options


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
