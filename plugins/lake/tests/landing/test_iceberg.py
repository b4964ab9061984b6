"""What others do to an Iceberg table, and what a scan of it can leave out."""

from __future__ import annotations

from pathlib import Path

from lakelog_lake.landing.dispatcher import LandingSource, land
from lakelog_lake.sinks.iceberg import sqlite_catalog
from lakelog_lake.tasks.engines import in_process
from plugins.lake.tests.landing.tables import (
    SMALL,
    TABLE,
    assert_exactly,
    keys_of,
    land_all,
    make,
    read,
)
from plugins.lake.tests.stores import filled


def test_files_are_left_out_by_topic_offset_and_time(store_path: Path, tmp_path: Path) -> None:
    land_all(LandingSource(store_path, "S"), make("iceberg", tmp_path))
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


def test_the_position_outlives_the_snapshots(store_path: Path, tmp_path: Path) -> None:
    source, sink = LandingSource(store_path, "S"), make("iceberg", tmp_path)
    land_all(source, sink)
    before = sink.head("S").position
    other = tmp_path / "other"
    filled(other, 10)
    land_all(LandingSource(other, "O"), sink)
    table = sqlite_catalog(tmp_path).load_table(TABLE)
    current = table.current_snapshot()
    assert current is not None
    old = [each.snapshot_id for each in table.metadata.snapshots if each != current]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert len(sqlite_catalog(tmp_path).load_table(TABLE).metadata.snapshots) == 1
    assert sink.head("S").position == before
    assert land_all(source, sink) == []
    assert_exactly("iceberg", tmp_path, keys_of(store_path, "S") + keys_of(other, "O"))


def test_a_table_that_was_rolled_back_lands_again_what_it_lost(
    store_path: Path, tmp_path: Path
) -> None:
    source, sink = LandingSource(store_path, "S"), make("iceberg", tmp_path)
    land_all(source, sink)
    table = sqlite_catalog(tmp_path).load_table(TABLE)
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[1].snapshot_id).commit()
    assert read("iceberg", tmp_path).num_rows < 300
    land_all(source, sink)
    assert_exactly("iceberg", tmp_path, keys_of(store_path, "S"))


def test_the_deletes_of_others_are_no_hindrance(store_path: Path, tmp_path: Path) -> None:
    source, sink = LandingSource(store_path, "S"), make("iceberg", tmp_path)

    def meanwhile(phase: str) -> None:
        if phase == "written":
            sqlite_catalog(tmp_path).load_table(TABLE).delete("queue_id = 3")

    first = land(source, sink, in_process, SMALL)
    second = land(source, sink, in_process, SMALL, meanwhile)
    assert first is not None
    assert second is not None
    assert second.won
    expected = [
        each
        for each in keys_of(store_path, "S", second.end)
        if each[2] != 3 or each[4] >= first.end
    ]
    assert_exactly("iceberg", tmp_path, expected)
