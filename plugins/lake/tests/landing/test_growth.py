"""Tables whose columns grow: fields inside of structs, and wider numbers where a format can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakelog import Message
from lakelog_lake.bodies.formats import parser_for
from lakelog_lake.errors import TableMismatch
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.maintenance.tables import compact
from lakelog_lake.tables.shape import fits
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.landing.table_specs import land_spec, read_dead
from plugins.lake.tests.landing.tables import opened, read
from plugins.lake.tests.stores import open_small

SMALL = (
    "id bigint, user struct<name: string>, l array<struct<a: string>>, n struct<in: struct<x: int>>"
)
GROWN = (
    "id bigint, user struct<name: string, age: int, at: struct<city: string>>, "
    "l array<struct<a: string, b: boolean>>, n struct<in: struct<x: int, y: string>, out: string>"
)
NARROW = "id bigint, i int, x float, s struct<i: int>, l array<int>"
WIDE = "id bigint, i bigint, x double, s struct<i: bigint, j: int>, l array<bigint>"
FIRST = {"id": 1, "user": {"name": "a"}, "l": [{"a": "b"}], "n": {"in": {"x": 1}}}
SECOND = {
    "id": 2,
    "user": {"name": "c", "age": 3, "at": {"city": "d"}},
    "l": [{"a": "e", "b": True}],
    "n": {"in": {"x": 2, "y": "f"}, "out": "g"},
}
WHOLE = {
    "id": 1,
    "user": {"name": "a", "age": None, "at": None},
    "l": [{"a": "b", "b": None}],
    "n": {"in": {"x": 1, "y": None}, "out": None},
}


def land(kind: str, folder: Path, ddl: str, *bodies: Any) -> None:
    (folder / "x.ddl").write_text(ddl)
    with open_small(folder / "s") as store:
        store.put_batch([Message("orders", json.dumps(each).encode()) for each in bodies])
    parsers = {"*": parser_for(f"json:{folder / 'x.ddl'}")}
    land_spec(
        LandingSource(folder / "s", "S"), TableSpec(f"{kind}:{folder / 't'}", parsers=parsers)
    )
    assert read_dead(kind, folder / "t").num_rows == 0


def rows(kind: str, folder: Path, *names: str) -> list[dict[str, Any]]:
    found = read(kind, folder / "t") if kind != "parquet" else _of_folder(folder / "t")
    return sorted(found.select(["id", *names]).to_pylist(), key=lambda row: row["id"])


def _of_folder(path: Path) -> Any:
    from pyarrow import parquet

    from lakelog_lake.sinks.parquet import ParquetSink

    parts = [parquet.read_table(each, partitioning=None) for each in ParquetSink(path).paths()]
    return pa.concat_tables(parts, promote_options="permissive")


def test_fields_come_into_structs(kind: str, tmp_path: Path) -> None:
    land(kind, tmp_path, SMALL, FIRST)
    land(kind, tmp_path, GROWN, SECOND)
    third = {**FIRST, "id": 3}
    land(kind, tmp_path, SMALL, third)  # by a dispatcher that knows no better
    expected = [WHOLE, SECOND, {**WHOLE, "id": 3}]
    assert rows(kind, tmp_path, "user", "l", "n") == expected
    if kind != "iceberg":
        assert compact(f"{kind}:{tmp_path / 't'}", None, 1 << 20, None)[0][1].removed == 3
        assert rows(kind, tmp_path, "user", "l", "n") == expected
    table = opened(f"{kind}:{tmp_path / 't'}")
    columns = ["store", "topic", "store_timestamp", "user"]  # pyiceberg 0.10 needs the partition's
    found = [row for batch in table.batches("S", columns) for row in batch.to_pylist()]
    assert sorted(str(row["user"]) for row in found) == sorted(str(r["user"]) for r in expected)


def test_numbers_get_wider_in_iceberg(tmp_path: Path) -> None:
    land("iceberg", tmp_path, NARROW, {"id": 1, "i": 2, "x": 0.5, "s": {"i": 4}, "l": [5]})
    big = 1 << 40
    second = {"id": 2, "i": big, "x": 0.1, "s": {"i": big, "j": 1}, "l": [big]}
    land("iceberg", tmp_path, WIDE, second)
    land("iceberg", tmp_path, NARROW, {"id": 3, "i": 7})
    first, wide, last = rows("iceberg", tmp_path, "i", "x", "s", "l")
    assert (first["i"], first["x"], first["l"]) == (2, 0.5, [5])
    assert first["s"] == {"i": 4, "j": None}
    assert wide == second
    assert (last["i"], last["s"]) == (7, None)


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_wider_numbers_are_refused_where_no_format_has_them(kind: str, tmp_path: Path) -> None:
    land(kind, tmp_path, NARROW, {"id": 1, "i": 2})
    with pytest.raises(TableMismatch, match=r"i is .*, not .*: land in a new table"):
        land(kind, tmp_path, WIDE, {"id": 2})


def test_decimals_get_more_digits_of_one_scale_only() -> None:
    few, many = pa.decimal128(6, 2), pa.decimal128(12, 2)
    assert fits(few, many, widens=True)
    assert not fits(few, pa.decimal128(12, 3), widens=True)
    assert not fits(pa.map_(pa.int32(), few), pa.map_(pa.int64(), few), widens=True)


@pytest.mark.sample(1)
def test_other_types_are_refused(kind: str, tmp_path: Path) -> None:
    land(kind, tmp_path, "id bigint, user struct<name: string>", {"id": 1, "user": {"name": "x"}})
    for ddl in ("user struct<name: int>", "user string", "user array<string>"):
        with pytest.raises(TableMismatch, match=r"user is [sS]truct.*: land in a new table"):
            land(kind, tmp_path, f"id bigint, {ddl}")
