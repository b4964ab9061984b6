"""The data source ``lakelog``, also named ``rocketmq``: batch and streaming.

Spark creates these objects in separate processes, and sends them to its executors.

The reader accepts no filters from Spark. Spark 4.1 keeps one reader per loaded frame. If the
filters of one query narrowed that reader, another query of the frame, or the other side of a union,
would silently get only the rows of the first query. Instead, :mod:`lakelog_spark.where` creates a
narrowed frame for each call.
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
from lakelog_spark.sessions.shipping import clear_importer_cache
from lakelog_spark.source.streaming import LakelogStreamReader
from lakelog_spark.writing.options import WriteOptions
from lakelog_spark.writing.stream_writer import LakelogStreamWriter
from lakelog_spark.writing.writer import LakelogWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class LakelogReader(DataSourceReader):
    """Reads one store; the end is determined once, so that a read has one state of the log."""

    def __init__(self, options: ReadOptions) -> None:
        if options.start.word == LATEST:
            raise SettingsError("start=latest is for streaming queries", key="start")
        with lakelog.open(options.path, mode="read"):  # fail early if it is not a store
            self._name = options.store_id or store_name(options.path)
        if options.start.store not in (None, self._name):
            raise OtherStore(options.path, str(options.start.store), self._name)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The ranges of records; called once per query."""
        with lakelog.open(self._options.path, mode="read") as store:
            return [InputPartition(each) for each in plan(store, self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one range; Spark passes ``None`` if there are no partitions."""
        if partition is not None:
            clear_importer_cache()
            yield from rows(self._options, self._name, partition.value)


class LakelogSource(DataSource):
    """``spark.read.format("lakelog").load("STORE")``."""

    @classmethod
    def name(cls) -> str:
        """Its short name."""
        return "lakelog"

    def schema(self) -> str:
        """The columns, which depend on ``include`` and ``corrupt`` only; called at ``load``.

        Raises :class:`~lakelog.errors.SettingsError` for wrong options.
        """
        return ddl_of(ReadOptions.of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the present store, or of its archive."""
        options = self._checked(schema)
        if options.archive is not None:
            from lakelog_spark.archived import ArchivedReader

            return ArchivedReader(options, options.archive)
        return LakelogReader(options)

    def streamReader(self, schema: StructType) -> LakelogStreamReader:  # noqa: N802  # Spark's name
        """A reader for streaming queries; raises :class:`~lakelog.errors.SettingsError`."""
        options = self._checked(schema)
        if options.archive is not None:
            raise SettingsError(f"{options.archive} is an archive: read it in a batch", key="path")
        return LakelogStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> LakelogWriter:
        """A writer that appends rows to the store; other processes may have it open, too."""
        return LakelogWriter(schema, WriteOptions.of(self.options), overwrite=overwrite)

    def streamWriter(  # noqa: N802  # Spark's name
        self, schema: StructType, overwrite: bool
    ) -> LakelogStreamWriter:
        """A writer that appends the rows of a streaming query, each micro-batch once."""
        options, checkpoint = WriteOptions.of_stream(self.options)
        return LakelogStreamWriter(schema, options, checkpoint, overwrite=overwrite)

    def _checked(self, schema: StructType) -> ReadOptions:
        options = ReadOptions.of(self.options)
        if schema.fieldNames() != list(names_of(options)):
            raise SettingsError("the columns are given by the source: leave out .schema(...)")
        return options


class RocketMQSource(LakelogSource):
    """The same data source under the name of RocketMQ."""

    @classmethod
    def name(cls) -> str:
        """Its short name."""
        return "rocketmq"


def register(spark: SparkSession) -> None:
    """Register the formats ``lakelog`` and ``rocketmq`` in a session."""
    for source in (LakelogSource, RocketMQSource):
        spark.dataSource.register(source)
