"""The engine ``spark`` of lakelog-lake: tasks, compaction, comparisons, and Spark SQL."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import lakelog
from lakelog_lake.engine_provider import VIEW, Answer, nothing
from lakelog_lake.errors import NoJava, SparkFailed
from lakelog_lake.maintenance.terms import Compacted
from lakelog_lake.reading.options import ReadOptions
from lakelog_lake.tasks.engines import Engine, Failed, checked, guarded, shares
from lakelog_spark import sessions, shipping, where
from lakelog_spark.catalog import SparkCatalogLocation, catalog_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakelog_lake.sinks.iceberg import IcebergSink
    from lakelog_lake.sinks.locations import TableLocation
    from lakelog_lake.tasks.task import Task, Written
    from lakelog_lake.verify.verify import Verified, VerifyRequest


_UNBOUNDED: Final = 1 << 31
_ORDER: Final = "store ASC NULLS FIRST, queue_id ASC NULLS FIRST, queue_offset ASC NULLS FIRST"


class SparkEngine:
    """A :class:`~lakelog_lake.engine_provider.EngineProvider`."""

    def missing(self) -> str | None:
        """Check for PySpark and Java; a version that is too old is not missing: it fails later.

        Raises :class:`~lakelog_lake.errors.NoJava` in CI, where tests must not be skipped.
        """
        if find_spec("pyspark") is None:
            return "pyspark is not installed (pip install 'lakelog[spark]')"
        if sessions.has_java():
            return None
        what = str(sessions.missing_java())
        if os.environ.get("CI") == "true":
            raise NoJava(f"CI=true, so Spark has to run here: {what}")
        return what

    @contextmanager
    def running(
        self,
        to: str,
        count: int | None,
        master: str | None,
        config: Mapping[str, str],
        on_done: Callable[[], None],
    ) -> Iterator[tuple[Engine, TableLocation | None]]:
        """A session for tasks, and the catalog of ``spark:CATALOG`` if ``to`` names one.

        Raises :class:`~lakelog_lake.errors.NoJava` and :class:`~lakelog_lake.errors.WrongSpark`.
        """
        catalog = catalog_in(to)
        started = sessions.session(
            master=master or f"local[{count or '*'}]", iceberg=catalog is not None, config=config
        )
        try:
            place = None if catalog is None else SparkCatalogLocation(started, catalog)
            yield spark(started, on_done), place
        finally:
            with suppress(Exception):  # its JVM has ended, or ends with this process
                started.stop()

    def compacted(
        self, warehouse: Path, sinks: Sequence[IcebergSink], target_bytes: int, master: str | None
    ) -> list[Compacted]:
        """Compact Iceberg tables of one warehouse."""
        with sessions.spark_session(warehouse, master) as session:
            return [compact(each, target_bytes, session) for each in sinks]

    def verified(self, asked: VerifyRequest, master: str | None) -> Verified:
        """Compare a table with its log."""
        from lakelog_spark.verify import verify_by_spark

        with sessions.spark_session(None, master) as session:
            return verify_by_spark(asked, session)

    def is_running(self) -> bool:
        """Whether a session runs in this process."""
        if "pyspark" not in sys.modules:
            return False
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession() is not None

    def answers(
        self,
        store: Path,
        statements: Iterable[str],
        limit: int,
        options: Mapping[str, str],
        master: str | None,
    ) -> Iterator[Answer]:
        """Run Spark SQL over the view ``messages`` of a store.

        Raises :class:`~lakelog_lake.errors.NoJava`, the errors of opening the store,
        :class:`~lakelog_lake.errors.StatementRefused` and
        :class:`~lakelog_lake.errors.SparkFailed`.
        """
        sessions.need_spark()
        from lakelog_spark.source import register

        with lakelog.open(store, mode="read"):  # fail before Spark starts if it is not a store
            ReadOptions.of({**options, "path": str(store)})
        with sessions.spark_session(None, master) as spark:
            register(spark)
            for statement in statements:
                with sessions.query_errors("the query failed"):
                    # a frame has the end of the log at its load
                    frame = where.read(spark, store, **options)
                    frame.createOrReplaceTempView(VIEW)
                    found = spark.sql(statement)
                    rows = (found.limit(limit + 1) if limit else found).toArrow()
                yield Answer(rows.slice(0, limit or None), bool(limit) and len(rows) > limit)


ENGINE: Final = SparkEngine()


def spark(session: SparkSession, on_done: Callable[[], None] = nothing) -> Engine:
    """An engine that runs tasks in Spark; executors need store and table under the same paths.

    There are at most as many Spark tasks as can run concurrently. Each runs consecutive ones of
    lakelog's tasks, whose rows go to the same files: a Spark task takes some 0.1 s to start, and
    the memory of one of lakelog's tasks.

    :param on_done: called repeatedly, from another thread, while Spark works and its JVM responds;
        Spark itself monitors the executors

    Raises :class:`~lakelog.errors.SettingsError` for a session of Spark Connect.
    """
    sessions.need_jvm(session)

    def run(tasks: Sequence[Task]) -> Sequence[Written]:
        if not tasks:
            return []
        with sessions.running_job(session), sessions.answering(session, on_done):
            context = session.sparkContext
            at_once = slots(context.getConf().get, context.defaultParallelism)
            divided = shares(tasks, at_once)
            spread = context.parallelize(divided, len(divided))
            found = spread.flatMap(_in_executor).collect()
        return checked(found)

    return run


def slots(setting: Callable[[str], str | None], now: int) -> int:
    """The number of tasks that can run at once, when all executors that may come are there.

    :param setting: returns a setting of the context, ``None`` if it is not set
    :param now: the cores of the executors that are registered, and at least 2
    """
    if str(setting("spark.dynamicAllocation.enabled")).lower() != "true":
        return now
    most = int(setting("spark.dynamicAllocation.maxExecutors") or _UNBOUNDED)
    is_standalone = str(setting("spark.master")).startswith("spark:")  # takes whole workers
    cores = int(setting("spark.executor.cores") or (_UNBOUNDED if is_standalone else 1))
    return max(now, most * max(1, cores // int(setting("spark.task.cpus") or 1)))


def _in_executor(tasks: Sequence[Task]) -> Sequence[Written | Failed]:
    shipping.clear_importer_cache()
    return guarded(tasks)


def compact(sink: IcebergSink, target_bytes: int, spark: SparkSession) -> Compacted:
    """Merge small files, sorted by store, queue and offset, and then rewrite the manifests.

    :param target_bytes: target size of a file
    :param spark: a session with the catalog of ``sink`` under the same name

    Raises :class:`~lakelog_lake.errors.SparkFailed`.
    """
    from pyspark.errors import PySparkException

    catalog = sink.catalog.name
    table = f"table => '{sink.table}'"
    options = f"map('min-input-files','2','target-file-size-bytes','{target_bytes}')"
    try:
        done = spark.sql(
            f"CALL {catalog}.system.rewrite_data_files({table}, strategy => 'sort', "
            f"sort_order => '{_ORDER}', options => {options})"
        ).collect()[0]
        spark.sql(f"CALL {catalog}.system.rewrite_manifests({table})").collect()
    except PySparkException as error:
        first = str(error).strip().splitlines()[0]
        raise SparkFailed(f"{sink.name} was not compacted: {first}") from error
    return Compacted(done["rewritten_data_files_count"], done["added_data_files_count"])
