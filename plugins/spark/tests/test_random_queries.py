"""Random queries through a real session give what Python finds in a plain scan of the store.

Predicates follow SQL: what is compared with null is unknown. Frames are narrowed by them, used
twice, put together and joined.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import lakelog
import lakelog_spark
from lakelog_lake.log.records import store_name
from lakelog_lake.log.wanted import is_system_topic
from plugins.lake.tests.reading.predicates import Predicate, RandomPredicates, Row
from plugins.lake.tests.stores import expected_rows, messages, open_small
from tests.support.sampling import seed_of_this_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Found = Counter[tuple[Any, ...]]
KINDS = ("read", "union", "reuse", "plain", "join", "semi", "group")


def literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"timestamp'{value.isoformat()}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


@attrs.frozen
class Queries(RandomPredicates):
    """Makes random queries of one store, each with what it should find."""

    spark: SparkSession
    path: Path
    plain: DataFrame

    def frame(self, where: Predicate) -> DataFrame:
        most = self.chance.choice(["16k", "1g"])
        return lakelog_spark.read(self.spark, self.path, where.sql, max_partition_bytes=most)

    def query(self, kind: str) -> tuple[str, DataFrame, Found]:
        """What it is, the query, and what it should find."""
        a, b, c = (self.predicate() for _ in range(3))
        said = f"{kind}: {a.sql} | {b.sql} | {c.sql}"
        first = self.frame(a)
        if kind == "read":
            return said, first.select("physical_offset"), offsets(a.of(self.rows))
        if kind == "union":
            found = offsets(a.of(self.rows)) + offsets(b.of(self.rows))
            return said, first.union(self.frame(b)).select("physical_offset"), found
        if kind in ("reuse", "plain"):
            frame, rows = (first, a.of(self.rows)) if kind == "reuse" else (self.plain, self.rows)
            both = frame.where(b.sql).union(frame.where(c.sql)).select("physical_offset")
            return said, both, offsets(b.of(rows)) + offsets(c.of(rows))
        if kind == "group":
            counts = Counter(row["topic"] for row in a.of(self.rows))
            return said, first.groupBy("topic").count(), Counter(counts.items())
        return said, *self.joined(kind, first, a.of(self.rows), b)

    def joined(
        self, kind: str, first: DataFrame, left: list[Row], other: Predicate
    ) -> tuple[DataFrame, Found]:
        """With another frame by queue offsets, or with those that have such."""
        keys = ["topic", "queue_offset"]
        second = self.frame(other)
        count = Counter(tuple(row[key] for key in keys) for row in other.of(self.rows))
        times = [(row, count[tuple(row[key] for key in keys)]) for row in left]
        if kind == "semi":
            found = offsets([row for row, number in times if number])
            return first.join(second, keys, "left_semi").select("physical_offset"), found
        found = offsets([row for row, number in times for _ in range(number)])
        return first.join(second.select(*keys), keys).select("physical_offset"), found


def offsets(rows: list[Row]) -> Found:
    return Counter((row["physical_offset"],) for row in rows)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour between batches; a topic that was deleted, and came again."""
    path, clock = tmp_path_factory.mktemp("random") / "store", time.time
    with open_small(path) as owner:
        for hour in range(4):
            with pytest.MonkeyPatch.context() as patched:
                seconds = hour * 3600
                patched.setattr("time.time", lambda: clock() + seconds)  # noqa: B023  # used here
                patched.setattr("time.time_ns", lambda: int((clock() + seconds) * 1e9))  # noqa: B023  # used here
                owner.put_batch(list(messages(100)))
            if hour == 1:
                assert owner.wait_dispatched()
                owner.delete_topic("topic-1")
    return path


def run(spark: SparkSession, path: Path, kind: str, count: int) -> None:
    """So many random queries that should find anything."""
    with lakelog.open(path, mode="read") as opened:
        rows = expected_rows(opened.scan(), store_name(path))
    assert not any(is_system_topic(row["topic"]) for row in rows)
    plain = lakelog_spark.read(spark, path)
    made = Queries(rows, random.Random(f"{seed_of_this_run()} {kind}"), literal, spark, path, plain)
    while count:
        said, frame, expected = made.query(kind)
        if expected:
            assert Counter(tuple(row) for row in frame.collect()) == expected, said
            count -= 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_random_query(spark: SparkSession, store: Path, kind: str) -> None:
    run(spark, store, kind, 1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_queries(spark: SparkSession, store: Path, kind: str) -> None:
    run(spark, store, kind, 70)
