"""``lakelog sql`` by Spark: what each statement sees, and that DuckDB gives the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog_lake.reading import duckdb
from lakelog_spark.engine import ENGINE
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.stores import filled, messages, open_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 300
QUERIES = (
    "select * from messages order by physical_offset",
    "select topic, queue_id, count(*) n, min(store_timestamp) low, max(length(unique_key)) high "
    "from messages group by topic, queue_id order by topic, queue_id",
    "select tags, sum(store_size) size from messages where topic = 'topic-1' and queue_id in (0, 1)"
    " and tags is not null group by tags order by tags",
    "select a.message_id from messages a join messages b on a.unique_key = b.unique_key "
    "where a.queue_offset > 20 and b.topic <> 'topic-2' order by 1",
    "select 1 one, 'x' two union all select 2, null order by 1",
)


def test_each_statement_sees_the_store_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.version
    path = tmp_path / "s"
    with open_small(path) as owner:

        def asked() -> Iterator[str]:
            for count in (20, 30):
                owner.put_batch(list(messages(count)))
                yield "select count(*) from messages"

        found = ENGINE.answers(path, asked(), 10, {"until": "readable"}, None)
        assert [each.rows.column(0)[0].as_py() for each in found] == [20, 50]


def test_both_engines_give_the_same(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.version
    store = filled(tmp_path / "s", COUNT)
    by_spark = ENGINE.answers(store, QUERIES, 0, {}, None)
    by_duck = duckdb.answers(store, QUERIES, 0, {})
    for query, one, other in zip(QUERIES, by_spark, by_duck, strict=True):
        assert one.rows.num_rows, query
        assert one.rows.to_pylist() == other.rows.to_pylist(), query


def test_the_command_prints_the_same_by_both_engines(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.version
    store = filled(tmp_path / "s", 20)
    for form in ("--json", "--csv"):
        query = f"{QUERIES[0]}; {QUERIES[4]}"
        one = run("sql", store, query, form)
        assert "engine spark: a Spark session is active" in one.stderr
        assert one.stdout == run("sql", store, query, form, "--engine", "duckdb").stdout
    some = run("sql", store, "select topic from messages", "--limit", 5, "--option", "tags=tag-1")
    assert some.stdout.splitlines() == ["topic-1", "topic-2"]
    assert "there are more rows" in run("sql", store, QUERIES[0], "--limit", 5).stderr
    wrong = run("sql", store, "select nothing from messages", "--engine", "spark")
    assert wrong.exit_code == 2
    (line,) = wrong.stderr.splitlines()
    assert "nothing" in line


def test_a_store_is_a_table_of_the_catalog(spark: SparkSession, tmp_path: Path) -> None:
    """Spark 4.1 gives the options when the table is created, and none when it is read."""
    store = filled(tmp_path / "s", COUNT)
    columns = spark.read.format("lakelog").load(str(store)).schema.simpleString()
    some = spark.read.format("lakelog").option("topics", "topic-1").load(str(store)).count()
    for place, count in (
        (f"LOCATION '{store}' COMMENT 'a shop'", COUNT),
        (f"OPTIONS (path '{store}', topics 'topic-1') TBLPROPERTIES ('made.by' = 'me')", some),
    ):
        try:
            spark.sql(f"CREATE TABLE shop USING lakelog {place}")
            assert spark.table("shop").count() == count
            assert spark.table("shop").schema.simpleString() == columns
            newest = "SELECT max(queue_offset) FROM shop WHERE topic = 'topic-1'"
            assert spark.sql(newest).first() is not None
        finally:
            spark.sql("DROP TABLE IF EXISTS shop")
