"""Landing in Iceberg by the Java classes of a Spark session, alone and by turns with pyiceberg."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from lakelog.errors import SettingsError
from lakelog_lake.errors import PositionMissing, TableMismatch, Unreachable
from lakelog_lake.landing.dispatcher import LandingDispatcher
from lakelog_lake.landing.targets import TableSpec, targets_for
from lakelog_lake.sinks.base import Sink
from lakelog_lake.sinks.iceberg import IcebergSink, sqlite_catalog
from lakelog_lake.sinks.locations import encoded
from lakelog_lake.tables.shape import TableShape, dead_letter_columns
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource
from lakelog_spark.catalog import (
    SparkCatalogLocation,
    SparkIcebergSink,
    catalog_in,
    spark_iceberg_sink,
)
from lakelog_spark.sessions import lake
from plugins.lake.tests.landing.passes import land
from plugins.lake.tests.landing.sink_contract import SinkContract
from plugins.lake.tests.landing.table_specs import all_passes, keys_by_topic
from plugins.lake.tests.landing.tables import (
    KEY,
    SMALL,
    SinkTable,
    assert_exactly,
    iceberg,
    keys_in,
    keys_of,
    land_all,
    land_one,
    position_in,
    read,
    when,
)
from plugins.lake.tests.landing.tables import TABLE as BY_PYICEBERG
from plugins.lake.tests.stores import filled
from plugins.spark.tests.conftest import warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = f"lake.{BY_PYICEBERG}"
SAME = (
    *("record_count", "column_sizes", "value_counts", "null_value_counts", "lower_bounds"),
    *("upper_bounds", "split_offsets", "spec_id", "file_format", "content"),
)


@pytest.fixture
def warehouse(spark: SparkSession) -> Iterator[Path]:
    """Of the session's catalog ``lake``, whose table is dropped afterwards."""
    yield warehouse_of(spark)
    spark.sql(f"DROP TABLE IF EXISTS {TABLE} PURGE")


@pytest.fixture
def sink(spark: SparkSession, warehouse: Path) -> SparkIcebergSink:
    assert warehouse.is_dir()
    made = spark_iceberg_sink(spark, TABLE)
    made.prepare()
    return made


def by_pyiceberg(warehouse: Path) -> IcebergSink:
    made = IcebergSink(sqlite_catalog(warehouse), BY_PYICEBERG)
    made.prepare()
    return made


@attrs.frozen
class SparkSinkTable(SinkTable):
    """By Java's classes; read back by pyiceberg."""

    session: SparkSession

    def made(self) -> SparkIcebergSink:
        made = spark_iceberg_sink(self.session, TABLE)
        made.prepare()
        return made


@pytest.mark.slow
class TestSparkSink(SinkContract):
    @pytest.fixture
    def table(self, spark: SparkSession, warehouse: Path) -> SparkSinkTable:
        return SparkSinkTable("iceberg", warehouse, spark)


@pytest.mark.slow
def test_files_are_described_as_pyiceberg_describes_them(
    sink: SparkIcebergSink, warehouse: Path, source: LandingSource
) -> None:
    """One pass of each; the manifests differ in nothing but paths."""
    other = IcebergSink(sqlite_catalog(warehouse), "lakelog.other")
    other.prepare()
    land_one(source, sink)
    land_one(source, other)

    def facts(name: str) -> list[tuple[Any, ...]]:
        found = iceberg(warehouse, name).inspect.files().to_pylist()
        return sorted(
            (str([each[name] for name in SAME]), *each["partition"].values()) for each in found
        )

    ours, theirs = facts(BY_PYICEBERG), facts("lakelog.other")
    assert len(ours) > 2
    assert ours == theirs


def test_a_catalog_in_an_object_store_is_refused_before_a_table_is_made(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = {name.replace(".lake", ".far"): value for name, value in lake(tmp_path).items()}
    config["spark.sql.catalog.far.warehouse"] = "s3://bucket/lake"
    for name, value in config.items():
        spark.conf.set(name, str(value))
    with pytest.raises(TableMismatch, match="s3://bucket/lake/a/b is not a local folder"):
        spark_iceberg_sink(spark, "far.a.b").prepare()
    assert spark.sql("SHOW TABLES IN far.a").collect() == []


def test_both_ways_take_turns(
    sink: SparkIcebergSink, warehouse: Path, source: LandingSource, tmp_path: Path
) -> None:
    other = filled(tmp_path / "other", 40)
    sinks: list[Sink] = [sink, by_pyiceberg(warehouse)]
    turns = 0
    while land(source, sinks[turns % 2], in_process, SMALL) is not None:
        turns += 1
        assert sinks[0].head("S").position == sinks[1].head("S").position
        land(LandingSource(other, "O"), sinks[turns % 2], in_process, SMALL)
    assert turns > 2
    assert_exactly("iceberg", warehouse, keys_of(source.path, "S") + keys_of(other, "O"))


@pytest.mark.slow
def test_a_clock_that_was_set_back_is_named(
    sink: SparkIcebergSink, warehouse: Path, source: LandingSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java would refuse its own metadata; by pyiceberg the times rise, and Java reads the table."""
    now = time.time
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: now() + 600)
        land_one(source, by_pyiceberg(warehouse))
    with pytest.raises(Unreachable, match=r"clock of this machine is \d+ s behind"):
        land_one(source, sink)
    land_all(source, by_pyiceberg(warehouse))
    assert_exactly("iceberg", warehouse, keys_of(source.path, "S"))
    assert sink.session.table(TABLE).count() == len(keys_of(source.path, "S"))


@pytest.mark.slow
def test_a_compaction_in_between_is_no_hindrance(
    spark: SparkSession, sink: SparkIcebergSink, warehouse: Path, source: LandingSource
) -> None:
    compact = f"table => '{BY_PYICEBERG}', options => map('rewrite-all', 'true')"
    land_one(source, sink)
    meanwhile = when(
        "written", lambda: spark.sql(f"CALL lake.system.rewrite_data_files({compact})")
    )
    assert land_one(source, sink, on_phase=meanwhile).won
    land_all(source, sink)
    found = iceberg(warehouse)
    operations = [each.summary.operation.value for each in found.metadata.snapshots if each.summary]
    assert "replace" in operations
    keys = sorted(map(tuple, spark.table(TABLE).select(*KEY).collect()))
    assert keys == keys_of(source.path, "S")


@pytest.mark.slow
def test_rows_without_a_position_are_refused(
    spark: SparkSession, sink: SparkIcebergSink, source: LandingSource
) -> None:
    land_all(source, sink)
    spark.sql(f"CREATE OR REPLACE TABLE {TABLE} USING iceberg AS SELECT * FROM {TABLE} LIMIT 9")
    with pytest.raises(PositionMissing, match="land in a new table"):
        sink.head("S")


@pytest.mark.slow
def test_it_goes_on_behind_the_last_rows_where_snapshots_have_expired(
    spark: SparkSession, sink: SparkIcebergSink, source: LandingSource
) -> None:
    land_all(source, sink)
    before = position_in(sink)
    spark.sql(f"INSERT INTO {TABLE} SELECT * FROM {TABLE} LIMIT 0")
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{BY_PYICEBERG}', "
        "older_than => current_timestamp(), retain_last => 1)"
    )
    assert sink.head("S").position == before
    assert land_all(source, sink) == []


@pytest.mark.slow
def test_another_table_is_refused(spark: SparkSession, warehouse: Path) -> None:
    assert warehouse.is_dir()
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {TABLE.rpartition('.')[0]}")
    spark.sql(f"CREATE TABLE {TABLE} (topic string) USING iceberg")
    with pytest.raises(TableMismatch, match="other columns than lakelog's: store is missing"):
        spark_iceberg_sink(spark, TABLE).prepare()
    with pytest.raises(SettingsError, match=r"is not CATALOG\.NAMESPACE\.TABLE"):
        spark_iceberg_sink(spark, BY_PYICEBERG)


@pytest.mark.slow
@pytest.mark.parametrize("partition", [(), ("store", "hour")])
def test_a_table_of_another_shape(
    spark: SparkSession, warehouse: Path, source: LandingSource, partition: tuple[str, ...]
) -> None:
    """The topic is kept by the table; columns that it lacks are added to it."""
    shape = TableShape(partition=partition, topic="it's one")
    sink = spark_iceberg_sink(spark, TABLE, shape)
    assert sink.marked() is None
    sink.prepare()
    assert (
        sink.marked() == IcebergSink(sqlite_catalog(warehouse), BY_PYICEBERG).marked() == "it's one"
    )
    land_all(source, sink)
    wider = TableShape(dead_letter_columns(), partition, "it's one")
    for made in (
        spark_iceberg_sink(spark, TABLE, wider),
        IcebergSink(sqlite_catalog(warehouse), BY_PYICEBERG, wider),
    ):
        made.prepare()
    assert spark.table(TABLE).columns[-1] == "error"
    assert spark.table(TABLE).count() == 300
    with pytest.raises(TableMismatch, match="partitioned by"):
        spark_iceberg_sink(spark, TABLE, TableShape(topic="it's one")).prepare()
    with pytest.raises(TableMismatch, match="holds the messages of"):
        spark_iceberg_sink(spark, TABLE, TableShape(partition=partition)).prepare()


def test_a_table_for_each_topic(
    spark: SparkSession, warehouse: Path, source: LandingSource
) -> None:
    spec = TableSpec("spark:lake", "topics.of_{topic}")
    for _ in range(2):  # the second time everything is there
        targets = targets_for(spec, SparkCatalogLocation(spark, "lake"))
        lander = LandingDispatcher(source, targets, in_process, SMALL)
        all_passes(lander)
        lander.finish()
    for topic, expected in keys_by_topic(keys_of(source.path, "S")).items():
        found = read("iceberg", warehouse, f"topics.of_{encoded(topic)}")
        assert keys_in(found) == sorted(expected)


@pytest.mark.parametrize("to", ["spark:", "spark:a b"])
def test_what_is_no_catalog_is_refused(to: str) -> None:
    with pytest.raises(SettingsError, match="spark:CATALOG"):
        catalog_in(to)
