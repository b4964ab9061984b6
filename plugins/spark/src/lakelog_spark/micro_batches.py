"""A streaming query as a dispatcher: each micro-batch lands in tables what its store holds by then.

The rows of a batch are not looked at, and Spark does not read them: a batch says only that more has
come. What lands is decided by the positions in the tables, as for ``lakelog dispatch``, by the same
passes with the same commits. So a batch that Spark runs again, because the driver was killed before
the checkpoint had it, finds its rows landed; and what a failed batch left lands by the next one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

import lakelog
from lakelog.errors import SettingsError
from lakelog_lake.bodies import parser_for
from lakelog_lake.landing.dispatcher import LandingDispatcher, LandingSource
from lakelog_lake.landing.targets import TableSpec, identity_of, pin_for, targets_for
from lakelog_lake.log.ends import end_of
from lakelog_lake.log.landmarks import Landmarks
from lakelog_lake.log.selection import Chosen
from lakelog_lake.reading.options import ReadOptions, names_of
from lakelog_lake.tables import partitions
from lakelog_lake.tables.parquet_writer import ParquetCompression
from lakelog_lake.tasks.ranges import TaskLimits
from lakelog_spark.catalog.place import SparkPlace, catalog_in
from lakelog_spark.engine import spark as by_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
) -> Lander:
    """What ``foreachBatch`` is given, so that a streaming query lands a store exactly once.

    :param store: the directory that the query reads
    :param to: ``iceberg:PATH``, ``delta:PATH``, ``parquet:PATH``; or ``spark:CATALOG``, a catalog
        of the query's session
    :param table: of Iceberg, ``NAMESPACE.TABLE``; with ``{topic}`` in it, or in PATH: one per topic
    :param partition: some of ``topic``, ``day``, ``hour``, ``store``, with commas; or ``none``
    :param bodies: ``FORMAT[:FILE]`` by topic, or by ``*``, as for ``lakelog dispatch --body``
    :param store_id: who the store is in the table, if not by its own UUID
    :param system_topics: whether RocketMQ's own topics land, too
    :param compression: of data files: ``zstd``, ``snappy``, ``lz4``, ``none``; or ``auto``, which
        is zstd, but for bodies that do not shrink by it
    :param pin: the name of the pin by which retention waits for the table

    Raises :class:`~lakelog_lake.errors.NotAStore` and :class:`~lakelog.errors.SettingsError`.
    """
    path = Path(store).absolute()
    source = LandingSource(path, identity_of(path, store_id), chosen=Chosen(system_topics))
    parsers = {topic: parser_for(text) for topic, text in (bodies or {}).items()}
    spec = TableSpec(
        to,
        table,
        partitions.parse(partition),
        parsers,
        compression=ParquetCompression.of(compression),
    )
    return Lander(source, spec, pin)


def _nothing(_: str) -> None:
    """Told of phases."""


@attrs.define
class Lander:
    """A function of a batch and its number; of one query at a time.

    :ivar pin: the name of the pin, if not the default
    :ivar on_phase: see :class:`~lakelog_lake.landing.dispatcher.LandingDispatcher`
    """

    source: LandingSource
    spec: TableSpec
    pin: str | None = None
    bounds: TaskLimits = attrs.field(factory=TaskLimits)
    on_phase: Callable[[str], None] = _nothing
    _running: LandingDispatcher | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Land all that is durable now, which is the batch at least, by tasks of Spark.

        Raises what a dispatcher raises: the query ends with it, and its next run goes on.
        """
        columns = set(names_of(ReadOptions(self.source.path, corrupt="collect")))
        if not columns >= set(frame.columns):
            raise SettingsError(
                f"batch {batch} has columns that are not the store's: the lander lands the store, "
                "not what became of its rows; give it the stream as it was loaded",
                key="foreachBatch",
            )
        running = self._running = self._running or self._started(frame.sparkSession)
        try:
            self._land(running)
        finally:
            running.close()

    def _land(self, running: LandingDispatcher) -> None:
        path = self.source.path
        with lakelog.open(path, mode="read") as store, Landmarks.of(store) as log:
            goal = end_of(log, None)
        while (landed := running.one_pass()) is not None:
            if landed.end >= goal and not landed.is_more:
                return

    def _started(self, session: SparkSession) -> LandingDispatcher:
        catalog = catalog_in(self.spec.to)
        place = None if catalog is None else SparkPlace(session, catalog)
        pinning = pin_for(self.source.path, self.source.store, self.spec, self.pin, place)
        targets, engine = targets_for(self.spec, place), by_spark(session)
        return LandingDispatcher(self.source, targets, engine, self.bounds, self.on_phase, pinning)
