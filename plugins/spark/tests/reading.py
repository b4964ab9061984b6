"""Reads a store as Spark would, without it: plans, and does every task's work in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import InputPartition

from lakelog_lake.reading.options import Limit, ReadOptions, to_option
from lakelog_spark.source import LakelogReader

Rows = list[dict[str, Any]]


def options(at: Path, /, **given: str) -> ReadOptions:
    return ReadOptions.of({"path": str(at), **given})


def reader(path: Path, limits: Mapping[str, Limit] | None = None, /, **given: str) -> LakelogReader:
    where = {} if limits is None else {"where": to_option(limits)}
    return LakelogReader(options(path, **where, **given))


def read(path: Path, limits: Mapping[str, Limit] | None = None, /, **given: str) -> Rows:
    return rows_of(made := reader(path, limits, **given), made.partitions())


def rows_of(made: Any, parts: Iterable[InputPartition]) -> Rows:
    return [
        {**row, "properties": dict(row["properties"] or {})}
        for part in parts
        for table in made.read(part)
        for row in table.to_pylist()
    ]


def offsets(rows: Rows) -> list[int]:
    return [row["physical_offset"] for row in rows]


def spans(parts: Iterable[InputPartition]) -> list[tuple[int, int]]:
    return [(each.value.start, each.value.end) for each in parts]
