"""Partitions as asked for, files of a target size, and columns that come later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet

from lakelog import Message
from lakelog_lake.errors import TableMismatch
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.tables.position import Position
from lakelog_lake.tables.shape import TableShape, message_columns, parse
from lakelog_lake.tasks.engines import in_process
from lakelog_lake.tasks.task import LandingSource, TaskLimits
from plugins.lake.tests.landing.passes import land, sink_for
from plugins.lake.tests.landing.table_specs import land_spec
from plugins.lake.tests.landing.tables import (
    SMALL,
    TABLE,
    files,
    keys_in,
    keys_of,
    land_all,
    land_one,
    make,
    read,
)
from plugins.lake.tests.stores import open_small, overwrite


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", ["none", "topic,hour,store"])
def test_partitions_as_asked_for(kind: str, store_path: Path, tmp_path: Path, text: str) -> None:
    spec = TableSpec(f"{kind}:{tmp_path / 't'}", partition=parse(text))
    land_spec(LandingSource(store_path, "S"), spec, TaskLimits())
    table = read(kind, tmp_path / "t")
    assert keys_in(table) == keys_of(store_path, "S")
    assert len(files(kind, tmp_path / "t")) == (3 if "topic" in text else 1)
    times = table["store_timestamp"].to_pylist()
    for key, form in {"day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}.items():
        if key in text and kind != "iceberg":
            assert [str(each) for each in table[key].to_pylist()] == [
                each.strftime(form) for each in times
            ]


def test_other_partitions_than_a_table_has_are_refused(kind: str, tmp_path: Path) -> None:
    sink = sink_for(f"{kind}:{tmp_path / 't'}", shape=TableShape(partition=("hour",)))
    sink.prepare()
    sink.commit(sink.head("S"), "S", [], Position(0, 1))
    with pytest.raises(TableMismatch, match=r"partitioned by hour, not by topic,day"):
        make(kind, tmp_path / "t")


@pytest.mark.sample(1)
def test_a_large_group_becomes_several_files(kind: str, store_path: Path, tmp_path: Path) -> None:
    spec = TableSpec(f"{kind}:{tmp_path / 't'}", partition=())
    land_spec(LandingSource(store_path, "S"), spec, TaskLimits(file_bytes=8 << 10))
    assert keys_in(read(kind, tmp_path / "t")) == keys_of(store_path, "S")
    found = files(kind, tmp_path / "t")
    assert len(found) > 3
    rows: list[Any] = []
    for path in sorted(found, key=_first):
        rows += parquet.read_table(path, partitioning=None).to_pylist()
    keys = [(each["topic"], each["queue_id"], each["queue_offset"]) for each in rows]
    assert keys == sorted(keys)


def _first(path: Path) -> Any:
    row = parquet.read_table(path, partitioning=None).slice(0, 1).to_pylist()[0]
    return row["topic"], row["queue_id"], row["queue_offset"]


def test_bounds_of_a_file_cover_all_of_its_rows(store_path: Path, tmp_path: Path) -> None:
    """Those of several row groups."""
    spec = TableSpec(f"delta:{tmp_path / 't'}", partition=())
    land_spec(LandingSource(store_path, "S"), spec, TaskLimits(file_bytes=16 << 10))
    actions = pa.table(DeltaTable(tmp_path / "t").get_add_actions(flatten=True)).to_pylist()
    groups = 0
    for each in actions:
        file = parquet.ParquetFile(tmp_path / "t" / each["path"])
        groups = max(groups, file.num_row_groups)
        for name in ("topic", "queue_id", "queue_offset", "physical_offset"):
            values = file.read([name])[name].to_pylist()
            assert (each[f"min.{name}"], each[f"max.{name}"]) == (min(values), max(values))
    assert groups > 1


def test_rows_of_several_days_are_in_their_partitions(tmp_path: Path) -> None:
    days = [20_000 + number % 3 for number in range(30)]
    with open_small(tmp_path / "s") as store:
        done = store.put_batch([Message("t", b"1", queue_id=0) for _ in days])
    for each, day in zip(done, days, strict=True):
        stored = (day * 86_400_000 + 1).to_bytes(8, "big")
        overwrite(tmp_path / "s", each.physical_offset + 56, stored)
    land_all(LandingSource(tmp_path / "s", "S"), make("delta", tmp_path / "t"))
    rows = read("delta", tmp_path / "t")
    assert rows.num_rows == len(days)
    assert rows["day"].to_pylist() == [each.date() for each in rows["store_timestamp"].to_pylist()]
    assert len(files("delta", tmp_path / "t")) == 3


def test_columns_that_a_table_lacks_are_added(kind: str, store_path: Path, tmp_path: Path) -> None:
    known = message_columns()
    columns = pa.schema([each for each in known if each.name not in ("tags", "keys")])
    older = sink_for(f"{kind}:{tmp_path / 't'}", shape=TableShape(columns))
    older.prepare()
    first = land_one(LandingSource(store_path, "S"), older)
    sink = make(kind, tmp_path / "t")
    land_all(LandingSource(store_path, "S"), sink)
    table = read(kind, tmp_path / "t")
    assert keys_in(table) == keys_of(store_path, "S")
    for row in table.select(["physical_offset", "keys"]).to_pylist():
        assert (row["keys"] is None) == (row["physical_offset"] < first.end)
    make(kind, tmp_path / "t")


def test_columns_that_only_the_table_has_are_null(
    kind: str, store_path: Path, tmp_path: Path
) -> None:
    more = message_columns().append(pa.field("remark", pa.string()))
    newer = sink_for(f"{kind}:{tmp_path / 't'}", shape=TableShape(more))
    newer.prepare()
    land(LandingSource(store_path, "S"), newer, in_process, SMALL)
    land_all(LandingSource(store_path, "S"), make(kind, tmp_path / "t"))
    table = read(kind, tmp_path / "t")
    assert keys_in(table) == keys_of(store_path, "S")
    assert table["remark"].null_count == 300
    newer.prepare()


def test_a_column_of_another_type_is_refused(kind: str, store_path: Path, tmp_path: Path) -> None:
    at = message_columns().get_field_index("queue_id")
    other = message_columns().set(at, pa.field("queue_id", pa.string()))
    sink = sink_for(f"{kind}:{tmp_path / 't'}", shape=TableShape(other))
    sink.prepare()
    sink.commit(sink.head("S"), "S", [], Position(0, 1))
    with pytest.raises(TableMismatch, match=r"queue_id is \S*string\S*, not \S*int"):
        make(kind, tmp_path / "t")


def test_a_table_that_wants_more_is_refused(tmp_path: Path) -> None:
    from lakelog_lake.sinks.iceberg import sqlite_catalog

    catalog = sqlite_catalog(tmp_path / "t")
    catalog.create_namespace("lakelog")
    fields = [*message_columns(), pa.field("needed", pa.int64(), nullable=False)]
    catalog.create_table(TABLE, pa.schema(fields))
    with pytest.raises(TableMismatch, match="needed must not be null"):
        make("iceberg", tmp_path / "t")
