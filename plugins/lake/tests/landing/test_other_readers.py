"""Each reader that is installed counts the same rows of a table, whatever column it filters by."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakelog import Message
from lakelog_lake.maintenance.tables import expire
from lakelog_lake.maintenance.terms import RetentionTerms
from lakelog_lake.tables.data_files import FilePlacement, PartitionFiles
from lakelog_lake.tables.shape import Layout
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing.tables import (
    assert_exactly,
    iceberg,
    keys_of,
    land_all,
    make,
    read,
)
from plugins.lake.tests.stores import filled, open_small

Count = Callable[[str, str, Any], int]
"""Of the rows that a reader finds by a column, a comparison and a value."""
TOPICS = ("orders", "001", "a%b", "%DLQ%group", "a|b_-9", "x" * 120)


def by_arrow(rows: pa.Table) -> Count:
    """What is right: all rows are read, and then filtered."""

    def count(name: str, how: str, value: Any) -> int:
        column = rows[name]
        if how in ("IS NULL", "IS NOT NULL"):
            found = pc.is_null(column) if how == "IS NULL" else pc.is_valid(column)
        else:
            found = (pc.equal if how == "=" else pc.greater_equal)(column, value)
        return int(pc.sum(found).as_py() or 0)

    return count


def by_pyiceberg(path: Path) -> Count:
    from pyiceberg import expressions

    kinds: dict[str, Any] = {
        "IS NULL": expressions.IsNull,
        "IS NOT NULL": expressions.NotNull,
        "=": expressions.EqualTo,
        ">=": expressions.GreaterThanOrEqual,
    }

    def count(name: str, how: str, value: Any) -> int:
        given = (name,) if how.startswith("IS") else (name, value)
        return int(iceberg(path).scan(kinds[how](*given)).to_arrow().num_rows)

    return count


def literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat()}'"
    return repr(value) if isinstance(value, int) else f"'{value}'"


def by_deltalake(path: Path) -> Count:
    from deltalake import DeltaTable, QueryBuilder

    def count(name: str, how: str, value: Any) -> int:
        condition = f"{name} {how}" if how.startswith("IS") else f"{name} {how} {literal(value)}"
        builder = QueryBuilder().register("t", DeltaTable(str(path)))
        found = builder.execute(f"SELECT count(*) AS n FROM t WHERE {condition}").read_all()
        return int(pa.table(found)["n"][0].as_py())

    return count


def by_polars(path: Path) -> Count:
    import polars  # type: ignore[import-not-found,unused-ignore]  # not a package of the tests

    def count(name: str, how: str, value: Any) -> int:
        column = polars.col(name)
        found = {
            "IS NULL": column.is_null,
            "IS NOT NULL": column.is_not_null,
            "=": lambda: column == value,
            ">=": lambda: column >= value,
        }[how]()
        return int(polars.scan_delta(str(path)).filter(found).collect().height)

    return count


READERS = {
    "iceberg": [by_pyiceberg],
    "delta": [by_deltalake, *([by_polars] if find_spec("polars") else [])],
}


def asked_of(rows: pa.Table) -> list[tuple[str, str, Any]]:
    """Each topic, and what is null, not null, equal to a value and beyond it in each column."""
    nested = {"keys", "properties", "body"}
    asked: list[tuple[str, str, Any]] = [("topic", "=", topic) for topic in TOPICS]
    for name in rows.column_names:
        if name not in nested:
            value = next((each for each in rows[name].to_pylist() if each is not None), None)
            hows = ("IS NULL", "IS NOT NULL", *(() if value is None else ("=", ">=")))
            asked += [(name, how, value) for how in hows]
    return asked


@pytest.mark.parametrize("kind", READERS)
def test_readers_agree_by_each_column(kind: str, tmp_path: Path) -> None:
    """Also on what is null in some or all files, and on topics whose names have ``%`` or ``|``."""
    path, store = tmp_path / "t", filled(tmp_path / "s", 30)
    with open_small(store) as opened:
        opened.put_batch([Message(topic, b"1", queue_id=0) for topic in TOPICS])
    land_all(LandingSource(store, "S"), make(kind, path))
    rows = read(kind, path)
    right = by_arrow(rows)
    for reader in READERS[kind]:
        found = reader(path)
        for each in asked_of(rows):
            assert found(*each) == right(*each), (reader.__name__, *each)


def test_an_expiry_knows_the_files_in_folders_of_any_topic(tmp_path: Path) -> None:
    """Their names are encoded in the folder, and once more in Delta's log."""
    store, path = tmp_path / "s", tmp_path / "t"
    with open_small(store) as opened:
        opened.put_batch([Message(topic, b"1", queue_id=0) for topic in (*TOPICS, "|" * 127)])
    land_all(LandingSource(store, "S"), make("delta", path))
    left = path / "data" / "topic=a%25b" / "left.parquet"
    left.touch()
    for each in path.rglob("*.parquet"):
        os.utime(each, (0, 0))
    (found,) = expire(f"delta:{path}", None, RetentionTerms(0))
    assert found[1].files == 1
    assert not left.exists()
    assert_exactly("delta", path, keys_of(store, "S"))


def test_each_column_has_its_number_of_nulls(tmp_path: Path) -> None:
    """DuckDB takes a column without such a number for one without nulls."""
    inner = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.int32()))])
    kinds = {"n": pa.int64(), "s": inner, "l": pa.list_(pa.string())}
    kinds |= {"m": pa.map_(pa.string(), pa.int32()), "f": pa.float64(), "body": pa.binary()}
    schema = pa.schema([pa.field(name, kind) for name, kind in kinds.items()])
    rows: list[dict[str, Any]] = [
        {"n": 1, "s": {"a": 1, "b": None}, "l": [None], "m": {"k": None}, "f": 0.5, "body": b""},
        {"n": None, "s": {"a": None, "b": [1]}, "l": None, "m": None, "f": None, "body": None},
        {"n": 2, "s": None, "l": [], "m": {}, "f": None, "body": b"x"},
    ]
    batches = [
        pa.RecordBatch.from_pylist(rows[:2], schema),
        pa.RecordBatch.from_pylist(rows, schema),
    ]
    place = FilePlacement(tmp_path, Layout(schema, ()), "S", "0", 1 << 20)
    with PartitionFiles() as files:
        files.add(0, place, {}, batches)
        (facts,) = files.finished()[0]
    nulls = {"n": 2, "s": 1, "s.a": 3, "s.b": 3, "l": 2, "m": 2, "f": 3, "body": 2}
    assert facts.null_counts == nulls
    assert {name: facts.value_counts[name] for name in nulls} == dict.fromkeys(nulls, 5)
