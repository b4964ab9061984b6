"""``lakelog_spark.read`` reads less where its predicate allows it, and gives what a scan gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakelog_spark
from lakelog_lake.log.wanted import NumberSpan
from lakelog_lake.reading.options import Limit, ReadOptions, ddl_of
from lakelog_spark.where import limits_of
from plugins.lake.tests.stores import SEGMENT, filled, messages, open_small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 300
NOON_MS = 1795262400000
A: frozenset[str] = frozenset("a")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be read only."""
    return filled(tmp_path_factory.mktemp("where") / "store", COUNT)


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.physical_offset for row in frame.select("physical_offset").collect())


PREDICATES: list[tuple[str, dict[str, Limit]]] = [
    ("topic = 'a'", {"topic": A}),
    ("'a' = TOPIC", {"topic": A}),
    ("topic <=> 'a'", {"topic": A}),
    ("topic in ('a', 'b') and queue_id = 3", {"topic": A | {"b"}, "queue_id": frozenset({3})}),
    ("topic = 'a' and topic = 'b'", {"topic": frozenset()}),
    ("topic = 'a' or topic = 'b'", {"topic": A | {"b"}}),
    ("topic = 'a' or body is null", {}),
    ("topic = 'a' and rand() < 0.5", {"topic": A}),
    ("tags in ('t')", {"tags": frozenset("t")}),
    ("queue_offset > 5 and queue_offset <= 9", {"queue_offset": NumberSpan(6, 10)}),
    ("queue_offset between 6 and 9", {"queue_offset": NumberSpan(6, 10)}),
    ("5 < queue_offset and 9 > queue_offset", {"queue_offset": NumberSpan(6, 9)}),
    ("queue_offset in (9, 4)", {"queue_offset": NumberSpan(4, 10)}),
    ("physical_offset >= 5 and physical_offset < 9", {"physical_offset": NumberSpan(5, 9)}),
    ("store_timestamp > '2026-11-21 12:00:00'", {"store_timestamp": NumberSpan(low=NOON_MS)}),
    # A row of the ms of a limit may come along.
    ("store_timestamp < '2026-11-21 12:00:00'", {"store_timestamp": NumberSpan(end=NOON_MS + 1)}),
    ("store_timestamp <= '2026-11-21 12:00:00'", {"store_timestamp": NumberSpan(end=NOON_MS + 1)}),
    ("store_timestamp < current_timestamp()", {}),
    ("topic is not null", {}),
    ("not topic = 'a'", {}),
    ("topic = null", {}),
    ("topic in ('a', null)", {}),
    ("topic like 'a%'", {}),
    ("topic = 5", {}),
    ("topic = 'a' collate utf8_lcase", {}),
    ("queue_id = 5.0", {}),
    ("queue_offset = 'five'", {}),
    ("upper(topic) = 'A'", {}),
    ("properties['topic'] = 'a'", {}),
]


def test_what_a_predicate_says_of_columns(spark: SparkSession, store: Path) -> None:
    frame = spark.createDataFrame([], ddl_of(ReadOptions.of({"path": str(store)})))
    for text, expected in PREDICATES:
        assert limits_of(frame.filter(text)) == expected, text


def test_less_is_read(spark: SparkSession, store: Path) -> None:
    from pyspark.sql import functions as fn

    plain = lakelog_spark.read(spark, store, max_partition_bytes=str(SEGMENT))
    late = offsets(plain)[-5]
    frame = lakelog_spark.read(
        spark, store, fn.col("physical_offset") >= late, max_partition_bytes=str(SEGMENT)
    )
    assert frame.rdd.getNumPartitions() == 1 < plain.rdd.getNumPartitions()
    assert offsets(frame) == offsets(plain)[-5:]


def test_frames_do_not_narrow_each_other(spark: SparkSession, store: Path) -> None:
    """Spark 4.1 keeps one reader for a frame: its filters must not narrow that."""
    one, other = (lakelog_spark.read(spark, store, f"topic = 'topic-{at}'") for at in (1, 2))
    assert one.union(other).union(lakelog_spark.read(spark, store)).count() == COUNT // 3 * 5
    assert one.count() == COUNT // 3
    frame = spark.read.format("lakelog").load(str(store))
    assert frame.where("topic = 'topic-1'").union(frame.where("queue_id = 9")).count() == COUNT // 3
    assert frame.count() == COUNT


def test_a_frame_keeps_its_end_and_a_new_one_moves(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_small(path) as owner:
        owner.put_batch(list(messages(100)))
        frame = lakelog_spark.read(spark, path, until="readable")
        assert frame.count() == 100
        owner.put_batch(list(messages(50)))
        assert frame.count() == 100
        assert lakelog_spark.read(spark, path, until="readable").count() == 150
