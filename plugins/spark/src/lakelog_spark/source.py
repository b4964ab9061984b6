"""The data source ``lakelog``, also named ``rocketmq``: batch and streaming.

Spark creates these objects in separate processes, and sends them to its executors.

The reader accepts no filters from Spark. Spark 4.1 keeps one reader per loaded frame. If the
filters of one query narrowed that reader, another query of the frame, or the other side of a union,
would silently get only the rows of the first query. Instead, :mod:`lakelog_spark.where` creates a
narrowed frame for each call.

``spark.readStream.format("lakelog")`` reads the new messages of a log, batch by batch. An offset is
JSON, ``{"version": 1, "store": ID, "offset": BYTES}``: all records before the physical offset
``BYTES`` were read. With ``max_bytes_per_batch`` or ``max_rows_per_batch`` a batch may end before
the log does.

When Spark 4.1 requests the latest offset, it passes a Python source neither the query's position
nor the trigger. With ``AvailableNow`` it makes this request once and then ends, so a bounded offset
would silently leave the rest unread. So batches are bounded only with the option
``trigger=processing-time``. Otherwise a batch has all messages, and the limits apply to its tasks.

``spark.read.format("lakelog").load("s3://bucket/old/UUID")`` reads the segments that
lakelog-archive has moved away, from the folder of a store in its archive, without the store
directory. Each segment in the archive's manifest is one partition, as no record crosses the end of
a segment. Tasks fetch ranges of the segment. Executors need lakelog-archive and fsspec's package
for the URL (such as ``s3fs``), configured by fsspec's own settings.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import attrs
import pyarrow as pa
from pyspark.sql import SparkSession, datasource
from pyspark.sql.types import StructType

import lakelog
from lakelog.errors import NotAStore, SettingsError, StoreError
from lakelog.files.filesystem import RealFileSystem
from lakelog.files.identity import FORMAT_VERSION, StoreIdentity, write_own
from lakelog.format.layout import COMMITLOG_DIR, STORE_FILE
from lakelog_lake.errors import OffsetUnavailable, OtherStore
from lakelog_lake.log.extent import RecordStarts, end_of
from lakelog_lake.log.records import store_name
from lakelog_lake.log.wanted import LAST, NumberSpan
from lakelog_lake.reading import log_ranges as planning
from lakelog_lake.reading import options as reading
from lakelog_lake.reading.options import names_of
from lakelog_lake.tables.shape import dead_letter_columns
from lakelog_spark.shipping import clear_importer_cache
from lakelog_spark.writing.writer import LakelogStreamWriter, LakelogWriter, WriteOptions

VERSION: Final = 1
_OPTIONS: Final = "lakelog.options"
"""The key of the options in the metadata of a column."""
_log = logging.getLogger("lakelog_spark")


def register(spark: SparkSession) -> None:
    """Register the formats ``lakelog`` and ``rocketmq`` in a session.

    Raises :class:`~lakelog_lake.errors.WrongSpark` for an unsupported version of its Spark.
    """
    from lakelog_spark.sessions import check_spark  # executors do not need it

    check_spark(spark.version, "the Spark of this session")
    for source in (LakelogSource, RocketMQSource):
        spark.dataSource.register(source)


class LakelogSource(datasource.DataSource):
    """``spark.read.format("lakelog").load("STORE")``."""

    @classmethod
    def name(cls) -> str:
        """Its short name."""
        return "lakelog"

    def schema(self) -> str | StructType:
        """The columns, which depend on ``include`` and ``corrupt`` only; called at ``load``.

        Spark 4.1 gives the options of a table of its catalog only here, when the table is created,
        but keeps the columns with their metadata. So the options are metadata of the first one.

        Raises :class:`~lakelog.errors.SettingsError` for wrong options.
        """
        options = reading.ReadOptions.of(self.options)
        if not reading.is_of_catalog(self.options):
            return reading.ddl_of(options)
        from pyspark.sql.pandas.types import from_arrow_schema

        kinds = dead_letter_columns()  # these have the column of errors
        made = from_arrow_schema(pa.schema([kinds.field(name) for name in names_of(options)]))
        given = json.dumps(reading.without_properties(self.options))
        made.fields[0].metadata = {_OPTIONS: given}
        return made

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        """A reader of the present store, or of its archive."""
        options = self._checked(schema)
        if options.archive is not None:
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

    def _checked(self, schema: StructType) -> reading.ReadOptions:
        kept = json.loads(schema.fields[0].metadata.get(_OPTIONS, "{}")) if schema.fields else {}
        options = reading.ReadOptions.of({**kept, **self.options})
        if schema.fieldNames() != list(names_of(options)):
            raise SettingsError("the columns are given by the source: leave out .schema(...)")
        return options


class RocketMQSource(LakelogSource):
    """The same data source under the name of RocketMQ."""

    @classmethod
    def name(cls) -> str:
        """Its short name."""
        return "rocketmq"


class _StoreReader:
    """What both readers of one store do."""

    def __init__(self, options: reading.ReadOptions) -> None:
        with lakelog.open(options.path, mode="read"):  # fail early if it is not a store
            self._name = options.store_id or store_name(options.path)
        self._options = options

    def read(self, partition: datasource.InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one range; Spark passes ``None`` if there are no partitions."""
        if partition is not None:
            clear_importer_cache()
            with lakelog.open(self._options.path, mode="read") as store:
                yield from planning.rows_in(store, self._options, self._name, partition.value)


class LakelogReader(_StoreReader, datasource.DataSourceReader):
    """Reads one store; the end is determined once, so that a read has one state of the log."""

    def __init__(self, options: reading.ReadOptions) -> None:
        super().__init__(options)
        _check_start(options, options.path, self._name)

    def partitions(self) -> list[datasource.InputPartition]:
        """The ranges of records; called once per query."""
        with lakelog.open(self._options.path, mode="read") as store:
            return [datasource.InputPartition(each) for each in planning.plan(store, self._options)]


class LakelogStreamReader(_StoreReader, datasource.DataSourceStreamReader):
    """Reads one store batch by batch.

    Its only state is the query's position, taken from the calls of :meth:`partitions`. After a
    restart Spark first calls :meth:`partitions` with the last offset as start and end.
    """

    def __init__(self, options: reading.ReadOptions) -> None:
        super().__init__(_for_tasks(options))
        self._initial: int | None = None
        self._reached: int | None = None
        self._asked = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The start of a new query, by the option ``start``."""
        if self._initial is None:
            with (
                lakelog.open(self._options.path, mode="read") as store,
                RecordStarts.of(store) as log,
            ):
                self._initial = _first(log, self._options)
        return self._offset(self._initial)

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The end of the next batch, as an offset."""
        reached, self._asked = self._reached, True
        if reached is None:
            reached = int(self.initialOffset()["offset"])
        with lakelog.open(self._options.path, mode="read") as store, RecordStarts.of(store) as log:
            end = max(end_of(log, self._options.until), reached)
            end = min(end, max(self._options.wanted.physical.end, reached))
            if self._options.trigger == reading.PROCESSING_TIME:
                end = planning.batch_end(
                    log,
                    NumberSpan(reached, end),
                    self._options.max_bytes_per_batch,
                    self._options.max_rows_per_batch,
                )
        return self._offset(end)

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> list[datasource.InputPartition]:
        """The ranges of one batch.

        Raises :class:`~lakelog_lake.errors.OtherStore` and
        :class:`~lakelog_lake.errors.OffsetUnavailable`.
        """
        part = NumberSpan(self._place(start), self._place(end))
        self._warn_of_unfinished(part)
        self._reached = max(self._reached or 0, part.end)
        if part.low >= part.end:
            return []
        with lakelog.open(self._options.path, mode="read") as store, RecordStarts.of(store) as log:
            found = planning.plan_between(log, self._there(log, part), self._options)
        return [datasource.InputPartition(each) for each in found]

    def _warn_of_unfinished(self, part: NumberSpan) -> None:
        """Warn about an unfinished batch of an earlier run, after which the query may end."""
        if not self._asked and part.low < part.end:
            _log.warning(
                "%s: an earlier run left the batch from %d to %d unfinished; under AvailableNow "
                "Spark 4.1 ends after it: run the query once more to read what is behind",
                *(self._options.path, part.low, part.end),
            )

    def _there(self, log: RecordStarts, part: NumberSpan) -> NumberSpan:
        """The part of a batch that is still in the log."""
        minimum = log.store.min_offset
        if part.low >= minimum:
            return part
        if self._options.lost != reading.SKIP:
            raise OffsetUnavailable(log.store.path, part.low, minimum, part.end)
        _log.warning("%s: the log from %d to %d was deleted", log.store.path, part.low, minimum)
        return NumberSpan(minimum, max(minimum, part.end))

    def _offset(self, offset: int) -> dict[str, Any]:
        return {"version": VERSION, "store": self._name, "offset": offset}

    def _place(self, found: dict[str, Any]) -> int:
        if found.get("store") != self._name:
            raise OtherStore(self._options.path, str(found.get("store")), self._name)
        return int(found["offset"])


def _check_start(options: reading.ReadOptions, place: Path | str, name: str) -> None:
    """Raise an error for a start that a batch read of the store ``name`` cannot have."""
    if options.start.word == reading.LATEST:
        raise SettingsError("start=latest is for streaming queries", key="start")
    if options.start.store not in (None, name):
        raise OtherStore(place, str(options.start.store), name)


def _for_tasks(options: reading.ReadOptions) -> reading.ReadOptions:
    """Limit the size of a task to that of a batch."""
    most = options.max_bytes_per_batch
    if most is None or most >= options.max_partition_bytes:
        return options
    return attrs.evolve(options, max_partition_bytes=most)


def _first(log: RecordStarts, options: reading.ReadOptions) -> int:
    """The physical offset for ``start``: a start of a record, or the end of the log."""
    minimum, start = log.store.min_offset, options.start
    end = max(minimum, end_of(log, options.until))
    if start.word == reading.LATEST:
        return end
    planning.check_start(log, options, end)
    if start.time_ms is not None:
        return planning.part_of_times(
            log, NumberSpan(minimum, end), NumberSpan(start.time_ms, LAST)
        ).low
    if start.offset is not None and start.offset < end:
        return log.before(max(start.offset, minimum), minimum)
    return end if start.offset is not None else minimum


class ArchivedReader(datasource.DataSourceReader):
    """Reads the segments that were in the archive folder of a store when the reader was made."""

    def __init__(self, options: reading.ReadOptions, url: str) -> None:
        """Read the manifest.

        Raises :class:`~lakelog.errors.NotAStore` if the folder has no archived segment,
        :class:`~lakelog.errors.StoreError` if it cannot be read, and
        :class:`~lakelog.errors.SettingsError` for a URL that fsspec cannot open.
        """
        from lakelog_archive.archive import Archive, ArchiveFolder  # other reads do not need it

        self._options, self._url = options, url.rstrip("/")
        try:
            found = Archive(ArchiveFolder.of(self._url))
            self._starts = tuple(found.starts())
            first = found.line(self._starts[0]) if self._starts else None
        except (ImportError, ValueError) as error:
            raise SettingsError(f"{url!r} cannot be read: {error}", key="path") from error
        except OSError as error:
            raise StoreError(f"{url} cannot be read: {error}") from error
        if not self._starts:
            raise NotAStore(f"{url} is not a folder of a store written by lakelog-archive")
        start, begin = options.start, self._starts[0]
        if first is None:
            raise StoreError(f"{url} cannot be read: the manifest entry of {begin} is damaged")
        self._segment_size_bytes = first.size
        self._uuid = self._url.rpartition("/")[2]
        self._name = options.store_id or self._uuid
        _check_start(options, url, self._name)
        if start.offset is not None and start.offset < begin and options.lost != reading.SKIP:
            raise OffsetUnavailable(url, start.offset, begin, self._starts[-1] + first.size)

    def partitions(self) -> list[datasource.InputPartition]:
        """One partition per segment; segments without any wanted record are left out."""
        size, wanted = self._segment_size_bytes, self._options.wanted
        return [
            datasource.InputPartition(planning.LogRange(start, start + size))
            for start in self._starts
            if start < wanted.physical.end and start + size > wanted.physical.low
        ]

    def read(self, partition: datasource.InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one segment."""
        if partition is not None:
            clear_importer_cache()
            with self._opened() as store:
                yield from planning.rows_in(store, self._options, self._name, partition.value)

    @contextmanager
    def _opened(self) -> Iterator[lakelog.Store]:
        """Open a temporary store with this identity, whose log has only the archived segments."""
        with TemporaryDirectory(prefix="lakelog-archived-") as folder:
            path = Path(folder)
            (path / COMMITLOG_DIR).mkdir()
            identity = {"version": FORMAT_VERSION, **StoreIdentity(self._uuid, True)._asdict()}
            write_own(RealFileSystem(), path, STORE_FILE, identity)
            with lakelog.open(
                path,
                mode="read",
                segment_size_bytes=self._segment_size_bytes,
                archive="fsspec",
                fsspec={"url": self._url.rpartition("/")[0]},
            ) as store:
                yield store
