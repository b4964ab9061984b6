"""The compared values of a row, computed by Spark; compare :mod:`lakelog_lake.verify.row_facts`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OWN: Final = frozenset({"store", "topic", "queue_id", "queue_offset", "physical_offset", "body"})
_COMPRESSED: Final = 1
_CRC31: Final = 0x7FFFFFFF


def facts_of(rows: DataFrame, columns: Sequence[str], *further: Column) -> DataFrame:
    """The compared values of each row.

    :param rows: rows with the key columns and ``columns``
    :param columns: the columns to compare
    :param further: columns to add
    """
    from pyspark.sql import functions as f

    others = [_hashable(name) for name in columns if name not in _OWN]
    has_body = "body" in columns
    crc = f.lit(False)
    if has_body and {"body_crc", "sys_flag"} <= set(columns):
        is_plain = f.col("sys_flag").bitwiseAND(_COMPRESSED) == 0
        wrong = f.crc32(f.col("body").cast("binary")).bitwiseAND(f.lit(_CRC31)) != f.col("body_crc")
        crc = f.coalesce(is_plain & wrong, f.lit(False))
    return rows.select(
        f.coalesce("physical_offset", f.lit(-1)).alias("at"),
        "topic",
        "queue_id",
        f.col("queue_offset").alias("offset"),
        _takes(columns).alias("takes"),
        (_hashed("body") if has_body else f.lit(0)).alias("body"),
        f.xxhash64(*others).alias("rest") if others else f.lit(0).alias("rest"),
        crc.alias("bad_crc"),
        *further,
    )


def _hashed(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.when(f.col(name).isNotNull(), f.xxhash64(f.col(name).cast("binary")))


def _hashable(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.map_entries(name) if name == "properties" else f.col(name)


def _takes(columns: Sequence[str]) -> Column:
    from pyspark.sql import functions as f

    from lakelog.format.sysflag import INNER_BATCH

    if not {"sys_flag", "properties"} <= set(columns):
        return f.lit(1)
    stated = f.expr("try_cast(properties['INNER_NUM'] as int)")
    is_inner = f.col("sys_flag").bitwiseAND(INNER_BATCH) != 0
    return f.coalesce(f.when(is_inner, stated), f.lit(1))
