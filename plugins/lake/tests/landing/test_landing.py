"""The sinks of this package keep their contract; what of landing is the matter of one kind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lakelog_lake.errors import TableMismatch, Unreachable
from lakelog_lake.sinks.iceberg import sqlite_catalog
from lakelog_lake.tables.shape import TableShape
from lakelog_lake.tasks.engines import in_process, processes
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing.passes import land, sink_for
from plugins.lake.tests.landing.sink_contract import LyingSink, SinkContract
from plugins.lake.tests.landing.tables import (
    SMALL,
    TABLE,
    assert_exactly,
    keys_of,
    land_all,
    make,
    make_foreign,
    read,
)


class TestSinks(SinkContract):
    """The fixture ``table`` is one of each kind."""


def test_a_table_that_takes_nothing_is_given_up(
    source: LandingSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    sink = LyingSink(make("parquet", tmp_path / "t"), does=False, times=100)
    with pytest.raises(Unreachable, match="the answer was lost"):
        land(source, sink, in_process, SMALL)
    assert read("parquet", tmp_path / "t").num_rows == 0


def test_processes_write_the_same(source: LandingSource, tmp_path: Path) -> None:
    sink = make("parquet", tmp_path / "t")
    with processes(2) as engine:
        while land(source, sink, engine, SMALL):
            pass
    assert_exactly("parquet", tmp_path / "t", keys_of(source.path, "S"))


@pytest.mark.parametrize("partition", [("topic", "day"), ("store",)])
def test_a_filter_on_a_column_without_bounds_finds_its_rows(
    source: LandingSource, tmp_path: Path, partition: tuple[str, ...]
) -> None:
    import deltalake

    sink = sink_for(f"delta:{tmp_path / 't'}", shape=TableShape(partition=partition))
    sink.prepare()
    land_all(source, sink)
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    rows = len(keys_of(source.path, "S"))
    for column in ("store", "message_id", "born_host"):
        found = table.to_pyarrow_table(filters=[(column, "!=", "?")])
        assert found.num_rows == rows, column


def test_a_table_of_somebody_else_is_refused(kind: str, tmp_path: Path) -> None:
    make_foreign(kind, tmp_path / "t")
    with pytest.raises(TableMismatch) as caught:
        make(kind, tmp_path / "t")
    said = str(caught.value)
    assert str(tmp_path / "t") in said or TABLE in said
    assert "queue_offset is missing" in said or "holds other files" in said
    assert "new table" in said or "new folder" in said
    if kind != "parquet":
        assert read(kind, tmp_path / "t").num_rows == 2


def test_files_are_left_out_by_topic_offset_and_time(source: LandingSource, tmp_path: Path) -> None:
    land_all(source, make("iceberg", tmp_path))
    table = sqlite_catalog(tmp_path).load_table(TABLE)
    everything = len(list(table.scan().plan_files()))
    for condition in ("topic = 'topic-1'", "physical_offset < 2000", "queue_offset > 23"):
        some = table.scan(row_filter=condition)
        assert 0 < len(list(some.plan_files())) < everything, condition
        assert some.to_arrow().num_rows > 0
    assert (
        list(table.scan(row_filter="store_timestamp < '2020-01-01T00:00:00+00:00'").plan_files())
        == []
    )
