"""With Spark: Iceberg's compaction, the comparison as a job, and SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakelog
from lakelog_lake.log.wanted import EVERYTHING
from lakelog_lake.maintenance.tables import compact, expire
from lakelog_lake.maintenance.terms import RetentionTerms
from lakelog_lake.sinks.base import Sink
from lakelog_lake.tasks.task import LandingSource
from lakelog_lake.verify.comparing import AHEAD, BODY, COLUMNS, DOUBLED, EXTRA, MISSING, PARSED
from lakelog_lake.verify.landed_table import all_opened
from lakelog_lake.verify.verify import Verified, VerifyRequest, verify_here
from lakelog_spark.verify import verify_by_spark
from plugins.lake.tests.landing.passes import sink_for
from plugins.lake.tests.landing.table_specs import land_spec
from plugins.lake.tests.landing.tables import assert_ordered, land_all, make, opened
from plugins.lake.tests.maintenance.planting import (
    change,
    doubled,
    moved_behind,
    with_value,
    without,
)
from plugins.lake.tests.maintenance.test_verify_parsed import FIRST, LATER, change_sum, put, spec
from plugins.lake.tests.stores import filled, overwrite
from plugins.spark.tests.conftest import warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NAME = "care.messages"


def test_iceberg_after_care(spark: SparkSession, store_path: Path) -> None:
    source, to = LandingSource(store_path, "S"), f"iceberg:{warehouse_of(spark)}"

    def sink() -> Sink:
        made = sink_for(to, NAME)
        made.prepare()
        return made

    land_all(source, sink())
    before = sink().head("S").position
    asked = VerifyRequest(store_path, "S", opened(to, NAME), EVERYTHING)
    small = len(asked.table.data_files())
    ((_, done),) = compact(to, NAME, 1 << 20, None)
    assert (done.removed, done.made) == (small, 3)
    ((_, gone),) = expire(to, NAME, RetentionTerms(0))
    assert gone.files >= small
    assert sink().head("S").position == before
    assert land_all(source, sink()) == []
    assert_ordered([Path(str(path).removeprefix("file:")) for path, _ in asked.table.data_files()])
    assert verify_here(asked).is_clean
    filled(store_path, 60)
    assert sum(each.rows for each in land_all(source, sink())) == 60
    found = verify_here(asked)
    assert found.is_clean
    assert sum(each.table for each in found.differences.tallies.values()) == 360


@pytest.mark.slow
def test_a_job_finds_what_the_comparison_here_finds(
    spark: SparkSession, store_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    land_all(LandingSource(store_path, "S"), make("parquet", path))
    change(path, "topic-0", lambda table: doubled(moved_behind(table, 0, 10_000_000), 3))
    change(path, "topic-1", lambda table: without(with_value(table, 0, "body", b"altered"), 1, 2))
    change(path, "topic-2", lambda table: with_value(moved_behind(table, 2, 5), 0, "tags", "no"))
    change(path, "topic-2", lambda table: moved_behind(table, 3, None))
    asked = VerifyRequest(store_path, "S", opened(f"parquet:{path}"), EVERYTHING)
    job, here = verify_by_spark(asked, spark), verify_here(asked)
    assert _told(job) == _told(here)
    kinds = {each.kind for each in job.differences.ranges}
    assert kinds == {AHEAD, BODY, COLUMNS, DOUBLED, EXTRA, MISSING}
    for kind in ("delta", "iceberg"):
        land_all(LandingSource(store_path, "S"), make(kind, tmp_path / kind))
        table = opened(f"{kind}:{tmp_path / kind}")
        asked = VerifyRequest(store_path, "S", table, EVERYTHING)
        assert verify_by_spark(asked, spark).is_clean


@pytest.mark.slow
def test_a_job_lists_damage_of_the_log(
    spark: SparkSession, store_path: Path, tmp_path: Path
) -> None:
    """Some before the landing, some behind it, and a record that another one follows."""
    with lakelog.open(store_path, mode="read") as store:
        places = [each.physical_offset for each in store.scan()]
    path = tmp_path / "t"
    overwrite(store_path, places[40] + 4, b"!")
    land_all(LandingSource(store_path, "S", skip_damage=True), make("parquet", path))
    asked = VerifyRequest(store_path, "S", opened(f"parquet:{path}"), EVERYTHING)
    for at in (120, 121, 200):
        overwrite(store_path, places[at] + 4, b"!")
    job, here = verify_by_spark(asked, spark), verify_here(asked)
    spans = [(40, 41), (120, 122), (200, 201)]
    assert [(each.start, each.end) for each in job.damaged] == [
        (places[first], places[behind]) for first, behind in spans
    ]
    assert job.damaged == here.damaged
    assert _told(job) == _told(here)
    assert {each.kind for each in job.differences.ranges} == {EXTRA}


def _told(found: Verified) -> tuple[object, object]:
    """Ranges and counts, by the names of queues."""
    names = found.queues.names
    ranges = [
        (each.kind, *names[each.queue], each.first, each.last, each.start, each.end, each.rows)
        for each in found.differences.ranges
    ]
    tallies = {
        names[queue]: (each.log, each.table, each.older, each.gaps, sorted(each.kinds.items()))
        for queue, each in found.differences.tallies.items()
    }
    return sorted(ranges), tallies


@pytest.mark.parametrize(
    "kind",
    ["iceberg", *(pytest.param(each, marks=pytest.mark.slow) for each in ("delta", "parquet"))],
)
def test_a_job_compares_columns_of_bodies(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    """Rows of two schemas, of which the later one is wider, and dead letters."""
    source = LandingSource(tmp_path / "s", "S")
    schemas = (FIRST, LATER if kind == "iceberg" else FIRST)
    for number, schema in enumerate(schemas):
        put(source.path, *range(4 * number, 4 * number + 4))
        land_spec(source, spec(kind, tmp_path, schema))
    (table,) = all_opened(f"{kind}:{tmp_path / 't'}")
    asked = VerifyRequest(source.path, "S", table.table, EVERYTHING, table.dead_letters)
    equal = verify_by_spark(asked, spark)
    assert equal.is_clean, list(equal.differences.each())
    assert equal.differences.unparsed == 0
    change_sum(kind, tmp_path / "t")
    job, here = verify_by_spark(asked, spark), verify_here(asked)
    assert {each.kind for each in job.differences.ranges} == {PARSED}
    assert _told(job) == _told(here)
    assert job.columns == here.columns
    for file in (tmp_path / "t" / "_lakelog").glob("bodies-*.json") if kind != "iceberg" else ():
        file.unlink()
        assert verify_by_spark(asked, spark).differences.unparsed == 8
