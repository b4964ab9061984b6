"""Spark SQL over the messages of a store, for ``lakelog sql --engine spark``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import lakelog
from lakelog_lake.engine_provider import VIEW, Answer
from lakelog_lake.reading.options import ReadOptions
from lakelog_spark.sessions.versions import need_spark


def is_running() -> bool:
    """Whether a session runs in this process."""
    import sys

    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def answers(
    store: Path,
    statements: Iterable[str],
    limit: int,
    options: Mapping[str, str],
    master: str | None,
) -> Iterator[Answer]:
    """See :meth:`lakelog_lake.engine_provider.EngineProvider.answers`.

    Raises :class:`~lakelog_lake.errors.NoJava`, the errors of opening the store,
    :class:`~lakelog_lake.errors.StatementRefused` and :class:`~lakelog_lake.errors.SparkFailed`.
    """
    need_spark()
    from lakelog_spark.sessions.jobs import query_errors, spark_session
    from lakelog_spark.source.data_source import register
    from lakelog_spark.where import read

    with lakelog.open(store, mode="read"):  # fail before Spark starts if it is not a store
        ReadOptions.of({**options, "path": str(store)})
    with spark_session(None, master) as spark:
        register(spark)
        for statement in statements:
            with query_errors("the query failed"):
                frame = read(spark, store, **options)  # a frame has the end of the log at its load
                frame.createOrReplaceTempView(VIEW)
                found = spark.sql(statement)
                rows = (found.limit(limit + 1) if limit else found).toArrow()
            yield Answer(rows.slice(0, limit or None), bool(limit) and len(rows) > limit)
