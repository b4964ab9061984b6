"""A real session reads stores, and lands them in an Iceberg table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PythonException

import lakelog
from lakelog_lake.log.records import NAMES, store_name
from plugins.lake.tests.stores import SEGMENT, damaged, expected_rows, filled, messages, open_small
from tests.support.fixtures import StoreFixtures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

COUNT = 300


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several segments; to be read only."""
    return filled(tmp_path_factory.mktemp("spark") / "store", COUNT)


def stored(path: Path) -> list[dict[str, Any]]:
    with lakelog.open(path, mode="read") as opened:
        return expected_rows(opened.scan(), store_name(path))


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    """All rows in the order of the log; Spark's times are local and naive."""
    rows = [row.asDict() for row in frame.orderBy("physical_offset").collect()]
    for row in rows:
        row["body"] = bytes(row["body"])
        for name in ("born_timestamp", "store_timestamp"):
            row[name] = row[name].astimezone()
    return rows


def test_rows_and_partitions(spark: SparkSession, store: Path) -> None:
    frame = spark.read.format("lakelog").option("max_partition_bytes", SEGMENT).load(str(store))
    segments = len(list((store / "commitlog").iterdir()))
    assert tuple(frame.columns) == NAMES
    assert frame.rdd.getNumPartitions() == segments > 3
    assert frame.count() == COUNT
    assert collected(frame) == stored(store)


def test_what_a_broker_left_under_the_other_name(
    spark: SparkSession, store_fixtures: StoreFixtures
) -> None:
    path = store_fixtures.get("real_broker").store
    everything = {"records": "all", "system_topics": "true", "decompress": "false"}
    frame = spark.read.format("rocketmq").options(**everything).load(f"file://{path}")
    assert collected(frame) == stored(path)


def test_beside_a_living_owner_each_query_sees_what_is_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with open_small(path) as owner:
        reader = spark.read.format("lakelog")
        assert reader.load(str(path)).count() == 0
        owner.put_batch(list(messages(100)))
        assert reader.option("until", "readable").load(str(path)).count() == 100
        owner.put_batch(list(messages(100)))
        assert reader.option("until", "readable").load(str(path)).count() == 200
        assert reader.option("until", "flushed").load(str(path)).count() == 0
        assert spark.read.format("lakelog").load(str(path)).count() == 0
    assert spark.read.format("lakelog").load(str(path)).count() == 200


def test_damage_fails_the_query_or_is_skipped_or_a_row(spark: SparkSession, tmp_path: Path) -> None:
    offset = damaged(filled(tmp_path / "store", COUNT), COUNT // 2)

    def load(**options: str) -> DataFrame:
        return spark.read.format("lakelog").options(**options).load(str(tmp_path / "store"))

    with pytest.raises(PythonException, match=f"record at offset {offset}"):
        load().count()
    assert load(corrupt="skip").count() == COUNT - 1
    assert load(corrupt="skip").where(f"physical_offset = {offset}").count() == 0
    (row,) = load(corrupt="collect").where("error is not null").collect()
    assert (row.physical_offset, row.topic) == (offset, None)
    assert f"record at offset {offset}" in row.error
    assert load(corrupt="collect").count() == COUNT


def test_what_is_refused_at_load(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    def reader() -> DataFrameReader:
        return spark.read.format("lakelog")

    (tmp_path / "notes.txt").write_text("no store")
    for made, path, said in (
        (reader(), tmp_path, "NotAStore: .*holds notes.txt"),
        (reader(), tmp_path / "nothing", "NotAStore: .*nothing"),
        (reader().schema("topic string"), store, "leave out .schema"),
        (reader().option("corupt", "skip"), store, "corupt in the options .*mean 'corrupt'"),
    ):
        with pytest.raises(AnalysisException, match=said):
            made.load(str(path)).count()


def test_an_iceberg_table_holds_what_the_log_holds(spark: SparkSession, store: Path) -> None:
    frame = spark.read.format("lakelog").load(str(store))
    frame.writeTo("lake.rocketmq.messages").using("iceberg").create()
    table = spark.table("lake.rocketmq.messages")
    assert collected(table) == stored(store)
    report = "SELECT topic, count(*) FROM lake.rocketmq.messages GROUP BY topic ORDER BY topic"
    counts = dict(map(tuple, spark.sql(report).collect()))
    assert counts == {f"topic-{number}": COUNT // 3 for number in range(3)}
