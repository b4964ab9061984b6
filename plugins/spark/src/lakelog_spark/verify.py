"""The comparison of a table with its log as a Spark job; compare :mod:`lakelog_lake.verify`.

It joins the records of the store with the rows of the table. Both sides are reduced to a few
numbers per row, and joined by physical offset. The driver gets counts per queue, a bounded number
of the rows that differ, and the damaged ranges of the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

import lakelog
from lakelog.format import checksum, layout
from lakelog_lake.log.records import ERROR, TYPES, LogSpan, merged
from lakelog_lake.log.wanted import is_system_topic
from lakelog_lake.verify import comparing
from lakelog_lake.verify.landed_table import DataFile, position_of
from lakelog_lake.verify.verify import LogBounds, ParsedAgain, Verified, VerifyRequest, bounds_of
from lakelog_spark import sessions, source

MOST_ROWS: Final = 100_000
"""Most differing rows that are listed as ranges; others are only counted."""
_BUT_DOUBLED: Final = tuple(
    kind for kind in comparing.MEANINGS if kind not in (comparing.DOUBLED, comparing.GAP)
)
_UNPARSED: Final = int(comparing.UNPARSED.view(np.int64))


def verify_by_spark(asked: VerifyRequest, spark: SparkSession) -> Verified:
    """Compare in a Spark job; executors need the store and the table under the same paths.

    Raises :class:`~lakelog_lake.errors.SparkFailed`, :class:`~lakelog_lake.errors.NeedsEngine` and
    the errors of reading the table.
    """
    source.register(spark)
    asked = asked.named()
    position = position_of(asked.table, asked.store)
    columns = comparing.compared(asked.table.columns())
    again = ParsedAgain.of(asked.table, position)
    with lakelog.open(asked.path, mode="read") as store:
        log = bounds_of(store, position, asked.table.name)
    with sessions.query_errors("the comparison failed"):
        found_rows = table_rows(asked, spark, columns, again)
        limits = comparing.VerifiableEnds(
            log.low, position.end, position_of(asked.table, asked.store).end
        )
        at = f.col("physical_offset")  # may be null
        recent = f.coalesce((at >= limits.end) & (at < limits.landed), f.lit(False))
        table = facts_of(found_rows.where(~recent), columns)  # they landed while files were listed
        records = log_facts(asked, spark, table, log, limits, columns, again)
        may_lack = comparing.has_parsed(asked.table.columns())
        joined = joined_with(records, table, limits, may_lack=may_lack)
        joined.persist()
        try:
            found, queues = counts(joined)
            found.unparsed = joined.where("is_unparsed").count()
            add_differing(found, queues, joined)
            damaged = damaged_spans(joined)
        finally:
            joined.unpersist()
    columns = (*columns, *again.fields.names)
    return Verified(asked, position, log, columns, queues, found, damaged)


def table_rows(
    asked: VerifyRequest, spark: SparkSession, columns: Sequence[str], again: ParsedAgain
) -> DataFrame:
    """The rows of the store, from the table's data files, with the column ``parsed``.

    Raises :class:`~lakelog_lake.errors.NeedsEngine`.
    """
    alike: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for path, constants in asked.data_files():
        alike.setdefault(repr(constants), (dict(constants), []))[1].append(path)
    schema = _types(columns, again)
    parts = [_files(spark, paths, constants, schema) for constants, paths in alike.values()]
    parts = parts or [spark.createDataFrame([], schema)]
    whole = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
    whole = whole.where(f.col("store") == asked.store)

    def parsed(rows: pa.RecordBatch) -> comparing.Words:
        is_dead = rows.column(ERROR).is_valid().to_numpy(zero_copy_only=False)
        return np.where(is_dead, comparing.UNPARSED, again.hashed(rows))

    if not again.fields.names:
        return whole.select(*columns, f.lit(0).cast("long").alias("parsed"))
    return _with_parsed(whole, columns, parsed)


def _types(columns: Sequence[str], again: ParsedAgain) -> StructType:
    """The types of the table's columns: files may lack some, or have narrower ones."""
    ours = cast("StructType", StructType.fromDDL(f"{_schema(columns)}, {ERROR} string"))
    return StructType([*from_arrow_schema(again.fields).fields, *ours.fields])


def _with_parsed(
    frame: DataFrame,
    columns: Sequence[str],
    parsed: Callable[[pa.RecordBatch], comparing.Words],
    *further: str,
) -> DataFrame:
    """Some columns of ``frame``, and ``parsed``, the result of a function of all of its columns."""
    kept = [*columns, *further]

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            words = pa.array(parsed(batch).view(np.int64))
            yield batch.select(kept).append_column("parsed", words)

    fields = [frame.schema[name] for name in kept]
    return frame.mapInArrow(run, StructType([*fields, StructField("parsed", LongType())]))


def _schema(columns: Sequence[str]) -> str:
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def _files(
    spark: SparkSession, paths: Sequence[DataFile | str], constants: Any, schema: StructType
) -> DataFrame:
    reader = spark.read.option("recursiveFileLookup", "true").schema(schema)
    found = reader.parquet(*map(_escaped, paths))
    for name, value in constants.items():
        found = found.withColumn(name, f.lit(value))
    return found


def _escaped(path: Any) -> str:
    """Escape characters that Spark reads as a glob pattern."""
    text = str(path)
    return "".join(f"\\{each}" if each in "[]{}*?\\" else each for each in text)


def log_facts(
    asked: VerifyRequest,
    spark: SparkSession,
    table: DataFrame,
    log: LogBounds,
    limits: comparing.VerifiableEnds,
    columns: Sequence[str],
    again: ParsedAgain,
) -> DataFrame:
    """The compared values of the log's records that should be rows of the table, and its damage.

    The column ``damaged_bytes`` is the length of a damaged range that begins at ``at``; it is null
    for a record. With topics chosen, ranges are only read around the records of their queues.
    """
    end = min(limits.end, log.end)
    if end <= limits.low:
        none = f.lit(None).cast("int").alias("damaged_bytes")
        empty = spark.createDataFrame([], f"{_schema(columns)}, parsed long")
        return facts_of(empty, columns, none)
    system = asked.chosen.system_topics or any(
        is_system_topic(row[0]) for row in table.select("topic").distinct().collect()
    )
    options = {
        "store_id": asked.store,
        "start": json.dumps({"offset": limits.low}),
        "end": json.dumps({"offset": end}),
        "until": "readable",
        "corrupt": "collect",
        "system_topics": str(system).lower(),
    }
    if asked.chosen.topics is not None:
        options["topics"] = ",".join(sorted(asked.chosen.topics))
    found = spark.read.format("lakelog").options(**options).load(str(asked.path))
    damaged = f.when(f.col("topic").isNull(), f.col("store_size")).alias("damaged_bytes")
    if again.fields.names:
        size = () if "store_size" in columns else ("store_size",)
        found = _with_parsed(found, columns, again.expected, *size)
    else:
        unknown = again.spans or comparing.has_parsed(again.table_columns)
        found = found.withColumn("parsed", f.lit(_UNPARSED if unknown else 0).cast("long"))
    return facts_of(found, columns, damaged)


def facts_of(rows: DataFrame, columns: Sequence[str], *further: Column) -> DataFrame:
    """The compared values of each row.

    :param rows: rows with the key columns and ``columns``
    :param columns: the columns to compare
    :param further: columns to add
    """
    others = [_hashable(name) for name in columns if name not in comparing.OWN]
    has_body = "body" in columns
    crc = f.lit(False)
    if has_body and {"body_crc", "sys_flag"} <= set(columns):
        is_plain = f.col("sys_flag").bitwiseAND(layout.COMPRESSED) == 0
        wrong = f.crc32(f.col("body").cast("binary")).bitwiseAND(
            f.lit(checksum.CRC31_MASK)
        ) != f.col("body_crc")
        crc = f.coalesce(is_plain & wrong, f.lit(False))
    return rows.select(
        f.coalesce("physical_offset", f.lit(-1)).alias("at"),
        "topic",
        "queue_id",
        f.col("queue_offset").alias("offset"),
        _takes(columns).alias("takes"),
        (_hashed("body") if has_body else f.lit(0)).alias("body"),
        f.xxhash64(*others).alias("rest") if others else f.lit(0).alias("rest"),
        "parsed",
        crc.alias("bad_crc"),
        *further,
    )


def _hashed(name: str) -> Column:
    return f.when(f.col(name).isNotNull(), f.xxhash64(f.col(name).cast("binary")))


def _hashable(name: str) -> Column:
    return f.map_entries(name) if name == "properties" else f.col(name)


def _takes(columns: Sequence[str]) -> Column:
    if not {"sys_flag", "properties"} <= set(columns):
        return f.lit(1)
    stated = f.expr("try_cast(properties['INNER_NUM'] as int)")
    is_inner = f.col("sys_flag").bitwiseAND(layout.INNER_BATCH) != 0
    return f.coalesce(f.when(is_inner, stated), f.lit(1))


def joined_with(
    log: DataFrame, table: DataFrame, limits: comparing.VerifiableEnds, *, may_lack: bool
) -> DataFrame:
    """Join both sides; the result has one row for each physical offset.

    :param log: compared values of the log's records, and its damage
    :param table: compared values of the table's rows
    :param may_lack: whether rows without a body are valid, as their body was parsed
    """
    fields = ("topic", "queue_id", "offset", "takes", "body", "rest", "parsed", "bad_crc")
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
    is_typed = in_both & (right["parsed"] != _UNPARSED)  # else it is a dead letter
    kinds = {
        comparing.DOUBLED: f.col("copies") > 1,
        comparing.CRC: older & right["bad_crc"],
        comparing.AHEAD: ahead,
        comparing.MISSING: left.isNotNull() & right.isNull(),
        comparing.EXTRA: left.isNull() & right.isNotNull() & ~older & ~ahead,
        comparing.PLACE: in_both & moved,
        comparing.BODY: in_both & ~same,
        comparing.COLUMNS: in_both & (left["rest"] != right["rest"]),
        comparing.PARSED: is_typed
        & (left["parsed"] != _UNPARSED)
        & (left["parsed"] != right["parsed"]),
    }
    lacks_body = right["body"].isNull() if may_lack else f.lit(False)
    is_unparsed = is_typed & (left["parsed"] == _UNPARSED) & lacks_body
    found = f.array_compact(f.array(*(f.when(is_so, kind) for kind, is_so in kinds.items())))
    own = f.coalesce(right, left)
    return both.select(
        "at",
        *(own[each].alias(each) for each in ("topic", "queue_id", "offset", "takes")),
        f.when(left.isNotNull(), 1).otherwise(0).alias("log"),
        "copies",
        older.alias("older"),
        found.alias("kinds"),
        is_unparsed.alias("is_unparsed"),
        "damaged_bytes",
    )


def damaged_spans(joined: DataFrame) -> tuple[LogSpan, ...]:
    """The damaged ranges of the log, in log order; adjacent ones of two tasks are one."""
    rows = joined.where("damaged_bytes is not null").select("at", "damaged_bytes").collect()
    return merged(LogSpan(start, start + length) for start, length in sorted(rows))


def counts(joined: DataFrame) -> tuple[comparing.Differences, comparing.Queues]:
    """Count rows and differing rows by queue; ranges are added by :func:`add_differing`."""
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
    found, queues = comparing.Differences(), comparing.Queues()
    for topic, queue_id, log, table, old, doubled, *kinds in counted.collect():
        tally = found.of(queues.number(topic, queue_id))
        tally.log, tally.table, tally.older = log, table, old
        tally.gaps = gaps.get((topic, queue_id)) or 0
        both = {comparing.DOUBLED: doubled, **dict(zip(_BUT_DOUBLED, kinds, strict=True))}
        tally.kinds = {kind: count for kind, count in both.items() if count}
    return found, queues


def add_differing(
    found: comparing.Differences, queues: comparing.Queues, joined: DataFrame
) -> None:
    """Add ranges; their rows are already counted."""
    differing = joined.where("size(kinds) > 0").orderBy("at").limit(MOST_ROWS).collect()
    counts = {queue: dict(tally.kinds) for queue, tally in found.tallies.items()}
    for kind in (comparing.DOUBLED, *_BUT_DOUBLED):
        rows = [row for row in differing if kind in row["kinds"]]
        repeats = [max(row["copies"] - 1, 1) if kind == comparing.DOUBLED else 1 for row in rows]
        facts = np.zeros(sum(repeats), comparing.FACT)
        at = 0
        for row, times in zip(rows, repeats, strict=True):
            these = facts[at : at + times]
            these["at"], these["offset"], these["takes"] = row["at"], row["offset"], row["takes"]
            these["queue"] = queues.number(row["topic"], row["queue_id"])
            at += times
        found.add(kind, facts)
    for queue, kinds in counts.items():
        found.of(queue).kinds = kinds
    listed_rows = sum(each.rows for each in found.ranges)
    found.not_listed += int(found.rows > listed_rows)
