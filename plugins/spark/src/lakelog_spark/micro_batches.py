"""A streaming query as a dispatcher: each micro-batch lands all durable messages of its store.

The rows of a batch are not used, and Spark does not read them: a batch only triggers passes. They
are the passes and commits of ``lakelog dispatch``, so the positions in the tables determine the
rows that land. If Spark repeats a batch, because the driver was killed before the checkpoint, its
rows have landed already and do not land again. Rows of a failed batch land with the next one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import attrs
from pyspark.sql import DataFrame, SparkSession

import lakelog
from lakelog.errors import SettingsError
from lakelog_lake.bodies.formats import parser_for
from lakelog_lake.landing.dispatcher import LandingDispatcher
from lakelog_lake.landing.targets import TableSpec, identity_of
from lakelog_lake.log import extent, wanted
from lakelog_lake.reading.options import ReadOptions, names_of
from lakelog_lake.tables import settings, shape
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from lakelog_spark.catalog import SparkCatalogLocation, catalog_in
from lakelog_spark.engine import spark as by_spark
from lakelog_spark.sessions import check_spark


def lander(  # noqa: PLR0913  # each says what lands, or where
    store: str | os.PathLike[str],
    *,
    to: str,
    table: str | None = None,
    partition: str = "topic,day",
    bodies: Mapping[str, str] | None = None,
    store_id: str | None = None,
    system_topics: bool = False,
    compression: str = "auto",
    pin: str | None = None,
    resume: str | None = None,
) -> Lander:
    """Make a function for ``foreachBatch`` that lands a store exactly once.

    :param store: the directory that the query reads
    :param to: ``iceberg:PATH``, ``delta:PATH``, ``parquet:PATH``; or ``spark:CATALOG``, a catalog
        of the query's session
    :param table: for Iceberg, ``NAMESPACE.TABLE``; ``{topic}`` in it or in PATH gives one table per
        topic
    :param partition: some of ``topic``, ``day``, ``hour``, ``store``, comma-separated; or ``none``
    :param bodies: ``FORMAT[:FILE]`` by topic, or by ``*``, as for ``lakelog dispatch --body``
    :param store_id: identity of the store in the table; by default its UUID
    :param system_topics: whether RocketMQ's own topics land as well
    :param compression: compression of data files: ``zstd``, ``snappy``, ``lz4``, ``gzip``,
        ``none``; or ``auto``, which is zstd, except for bodies that do not shrink
    :param pin: name of the pin by which retention keeps messages that have not landed; ``None``
        derives one
    :param resume: ``position`` or ``rows``, as for ``lakelog dispatch --resume``: what counts in a
        table that does not show how far the store has landed

    Raises :class:`~lakelog.errors.NotAStore` and :class:`~lakelog.errors.SettingsError`.
    """
    path = Path(store).absolute()
    source = LandingSource(path, identity_of(path, store_id), chosen=wanted.Chosen(system_topics))
    parsers = {topic: parser_for(text) for topic, text in (bodies or {}).items()}
    spec = TableSpec(
        to,
        table,
        shape.parse(partition),
        parsers,
        compression=settings.ParquetCompression.of(compression),
        resume=settings.Resume.of(resume),
    )
    return Lander(source, spec, pin)


@attrs.define
class Lander:
    """A function for ``foreachBatch``, for one query at a time.

    :ivar pin: the name of the pin; ``None`` derives one
    :ivar on_phase: see :class:`~lakelog_lake.landing.dispatcher.LandingDispatcher`
    """

    source: LandingSource
    spec: TableSpec
    pin: str | None = None
    bounds: TaskLimits = attrs.field(factory=TaskLimits)
    on_phase: Callable[[str], None] = lambda _: None
    _running: LandingDispatcher | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Land all messages that are durable now, including those of the batch, with Spark tasks.

        Raises :class:`~lakelog.errors.SettingsError` for a transformed frame, and the errors of a
        dispatcher. The query fails with them, and its next run continues.
        """
        columns = set(names_of(ReadOptions(self.source.path, corrupt="collect")))
        if not columns >= set(frame.columns):
            raise SettingsError(
                f"batch {batch} has other columns than the store: the lander lands the store, "
                "not transformed rows; give it the stream as loaded",
                key="foreachBatch",
            )
        running = self._running = self._running or self._started(frame.sparkSession)
        path = self.source.path
        with closing(running):
            with lakelog.open(path, mode="read") as store, extent.RecordStarts.of(store) as log:
                goal = extent.end_of(log, None)
            while (landed := running.one_pass()) is not None:
                if landed.end >= goal and not landed.is_more:
                    return

    def _started(self, session: SparkSession) -> LandingDispatcher:
        check_spark(session.version, "the Spark of this query")
        catalog = catalog_in(self.spec.to)
        place = None if catalog is None else SparkCatalogLocation(session, catalog)
        return LandingDispatcher.of(
            self.source,
            self.spec,
            by_spark(session),
            self.bounds,
            place,
            pin=self.pin,
            on_phase=self.on_phase,
        )
