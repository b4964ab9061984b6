"""The comparison as a Spark job: joins the records of the store with the rows of the table.

Both sides are reduced to a few numbers per row, and joined by physical offset. The driver gets
counts per queue, a bounded number of the rows that differ, and the damaged ranges of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lakelog
from lakelog_lake.readback.open import position_of
from lakelog_lake.verify.comparing import VerifiableEnds
from lakelog_lake.verify.row_facts import compared, has_parsed
from lakelog_lake.verify.verify import Verified, VerifyRequest, bounds_of
from lakelog_spark.sessions.jobs import query_errors
from lakelog_spark.verify.facts import facts_of
from lakelog_spark.verify.join import add_differing, counts, damaged_spans, joined_with
from lakelog_spark.verify.sides import before_end, log_facts, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify_by_spark(asked: VerifyRequest, spark: SparkSession) -> Verified:
    """Compare in a Spark job; executors need the store and the table under the same paths.

    Raises :class:`~lakelog_lake.errors.SparkFailed`, :class:`~lakelog_lake.errors.NeedsEngine` and
    the errors of reading the table.
    """
    from lakelog_spark.source.data_source import register

    register(spark)
    position = position_of(asked.table, asked.store)
    columns = compared(asked.table.columns())
    with lakelog.open(asked.path, mode="read") as store:
        log = bounds_of(store, position, asked.table.name)
    with query_errors("the comparison failed"):
        found_rows = table_rows(asked, spark, columns)
        limits = VerifiableEnds(log.low, position.end, position_of(asked.table, asked.store).end)
        table = facts_of(before_end(found_rows, limits), columns)
        records = log_facts(asked, spark, table, log, limits, columns)
        may_lack = has_parsed(asked.table.columns())
        joined = joined_with(records, table, limits, may_lack=may_lack)
        joined.persist()
        try:
            found, queues = counts(joined)
            add_differing(found, queues, joined)
            damaged = damaged_spans(joined)
        finally:
            joined.unpersist()
    return Verified(asked, position, log, columns, queues, found, damaged)
