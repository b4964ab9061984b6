"""Joins log and table by physical offset, and collects counts and differences in the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lakelog_lake.log.range_reader import LogSpan, merged
from lakelog_lake.verify.comparing import VerifiableEnds
from lakelog_lake.verify.differences import (
    AHEAD,
    BODY,
    COLUMNS,
    CRC,
    DOUBLED,
    EXTRA,
    MISSING,
    PLACE,
    Differences,
)
from lakelog_lake.verify.row_facts import FACT, Queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_ROWS: Final = 100_000
"""Most differing rows that are listed as ranges; others are only counted."""
_BUT_DOUBLED: Final = (CRC, AHEAD, MISSING, EXTRA, PLACE, BODY, COLUMNS)


def joined_with(
    log: DataFrame, table: DataFrame, limits: VerifiableEnds, *, may_lack: bool
) -> DataFrame:
    """Join both sides; the result has one row for each physical offset.

    :param log: compared values of the log's records, and its damage
    :param table: compared values of the table's rows
    :param may_lack: whether rows without a body are valid, as their body was parsed
    """
    from pyspark.sql import functions as f

    fields = ("topic", "queue_id", "offset", "takes", "body", "rest", "bad_crc")
    rows = table.groupBy("at").agg(
        f.count("*").alias("copies"), f.first(f.struct(*fields)).alias("t")
    )
    is_record = f.col("damaged_bytes").isNull()
    records = log.select("at", "damaged_bytes", f.when(is_record, f.struct(*fields)).alias("l"))
    both = records.join(rows, "at", "full_outer")
    left, right = f.col("l"), f.col("t")
    older = (f.col("at") >= 0) & (f.col("at") < limits.low)
    ahead = f.col("at") >= limits.end
    both = both.withColumn("copies", f.coalesce("copies", f.lit(0)))
    in_both = left.isNotNull() & right.isNotNull()
    place = ["topic", "queue_id", "offset"]
    moved = ~f.struct(*(left[each] for each in place)).eqNullSafe(
        f.struct(*(right[each] for each in place))
    )
    same = left["body"].eqNullSafe(right["body"])
    if may_lack:
        same = same | right["body"].isNull()
    kinds = {
        DOUBLED: f.col("copies") > 1,
        CRC: older & right["bad_crc"],
        AHEAD: ahead,
        MISSING: left.isNotNull() & right.isNull(),
        EXTRA: left.isNull() & right.isNotNull() & ~older & ~ahead,
        PLACE: in_both & moved,
        BODY: in_both & ~same,
        COLUMNS: in_both & (left["rest"] != right["rest"]),
    }
    found = f.array_compact(f.array(*(f.when(is_so, kind) for kind, is_so in kinds.items())))
    own = f.coalesce(right, left)
    return both.select(
        "at",
        *(own[each].alias(each) for each in ("topic", "queue_id", "offset", "takes")),
        f.when(left.isNotNull(), 1).otherwise(0).alias("log"),
        "copies",
        older.alias("older"),
        found.alias("kinds"),
        "damaged_bytes",
    )


def damaged_spans(joined: DataFrame) -> tuple[LogSpan, ...]:
    """The damaged ranges of the log, in log order; adjacent ones of two tasks are one."""
    rows = joined.where("damaged_bytes is not null").select("at", "damaged_bytes").collect()
    return merged(LogSpan(start, start + length) for start, length in sorted(rows))


def counts(joined: DataFrame) -> tuple[Differences, Queues]:
    """Count rows and differing rows by queue; ranges are added by :func:`add_differing`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy("topic", "queue_id").orderBy("at")
    behind = f.lag(f.col("offset") + f.col("takes")).over(order)
    rows = joined.where("copies > 0").withColumn(
        "gap", f.greatest(f.col("offset") - behind, f.lit(0))
    )
    gaps = {
        (row[0], row[1]): row[2]
        for row in rows.groupBy("topic", "queue_id").agg(f.sum("gap")).collect()
    }
    copies, older = f.col("copies"), f.col("older")
    compared = joined.where("log = 1 or copies > 0")  # no damage
    counted = compared.groupBy("topic", "queue_id").agg(
        f.sum("log"),
        f.sum(f.when(~older, copies).otherwise(0)),
        f.sum(f.when(older & (copies > 0), 1).otherwise(0)),
        f.sum(f.when(copies > 1, copies - 1).otherwise(0)),
        *(f.sum(f.array_contains("kinds", kind).cast("int")) for kind in _BUT_DOUBLED),
    )
    found, queues = Differences(), Queues()
    for topic, queue_id, log, table, old, doubled, *kinds in counted.collect():
        tally = found.of(queues.number(topic, queue_id))
        tally.log, tally.table, tally.older = log, table, old
        tally.gaps = gaps.get((topic, queue_id)) or 0
        both = {DOUBLED: doubled, **dict(zip(_BUT_DOUBLED, kinds, strict=True))}
        tally.kinds = {kind: count for kind, count in both.items() if count}
    return found, queues


def add_differing(found: Differences, queues: Queues, joined: DataFrame) -> None:
    """Add ranges; their rows are already counted."""
    differing = joined.where("size(kinds) > 0").orderBy("at").limit(MOST_ROWS).collect()
    counts = {queue: dict(tally.kinds) for queue, tally in found.tallies.items()}
    for kind in (DOUBLED, *_BUT_DOUBLED):
        rows = [row for row in differing if kind in row["kinds"]]
        repeats = [max(row["copies"] - 1, 1) if kind == DOUBLED else 1 for row in rows]
        facts = np.zeros(sum(repeats), FACT)
        at = 0
        for row, times in zip(rows, repeats, strict=True):
            facts[at : at + times] = _fact(row, queues)
            at += times
        found.add(kind, facts)
    for queue, kinds in counts.items():
        found.of(queue).kinds = kinds
    listed_rows = sum(each.rows for each in found.ranges)
    found.not_listed += int(found.rows > listed_rows)


def _fact(row: Any, queues: Queues) -> Any:
    fact = np.zeros((), FACT)
    fact["at"], fact["offset"], fact["takes"] = row["at"], row["offset"], row["takes"]
    fact["queue"] = queues.number(row["topic"], row["queue_id"])
    return fact
