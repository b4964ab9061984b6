"""Columns of parsed bodies are compared by the schemas under which the bodies landed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import attrs
import pytest
from deltalake import DeltaTable

from lakelog import Message
from lakelog_lake.bodies import recorded
from lakelog_lake.bodies.avro import Avro
from lakelog_lake.bodies.base import BodyParser, Whole
from lakelog_lake.bodies.json import Json
from lakelog_lake.bodies.protobuf import Protobuf, RegistryProtobuf
from lakelog_lake.bodies.schema_registry import Schema, SchemaRegistry
from lakelog_lake.errors import Unreadable
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.log.wanted import EVERYTHING
from lakelog_lake.tasks.task import LandingSource
from lakelog_lake.verify.comparing import PARSED
from lakelog_lake.verify.landed_table import all_opened
from lakelog_lake.verify.verify import Verified, VerifyRequest, verify_here
from plugins.lake.tests.bodies import avroschema
from plugins.lake.tests.landing.table_specs import Even, land_spec
from plugins.lake.tests.landing.tables import iceberg
from plugins.lake.tests.landing.test_cli import run
from plugins.lake.tests.maintenance.planting import change, with_value
from plugins.lake.tests.stores import open_small

FIRST = "id int, sum double, at timestamp, day date, ok boolean, user struct<name: string>"
LATER = (
    "id bigint, sum double, at timestamp, day date, user struct<age: int, name: string>, n float"
)


def body(number: int) -> bytes:
    return json.dumps(
        {
            "id": number,
            "sum": number / 3 if number % 2 else -0.0,
            "at": f"2026-01-02T03:04:{number:02}.123456Z",
            "day": "2026-01-02",
            "ok": number % 3 == 0,
            "user": {"name": f"süß {number}", "age": number} if number % 4 else None,
            "n": 0.1,
        }
    ).encode()


def put(path: Path, *numbers: int) -> None:
    """Orders, two of which are no JSON, and messages whose bodies land as they are."""
    with open_small(path) as store:
        orders = [Message("orders", body(each), queue_id=0) for each in numbers]
        others = [Message("other", b"%d" % each, queue_id=0) for each in numbers]
        store.put_batch([*orders, Message("orders", b"no json", queue_id=0), *others])


def spec(kind: str, path: Path, ddl: str) -> TableSpec:
    return TableSpec(f"{kind}:{path / 't'}", parsers={"orders": Json.of(ddl, "x")})


def verify(kind: str, path: Path) -> Verified:
    (table,) = all_opened(f"{kind}:{path / 't'}")
    asked = VerifyRequest(path / "s", "S", table.table, EVERYTHING, table.dead_letters)
    return verify_here(asked)


@pytest.fixture
def landed(kind: str, tmp_path: Path) -> Path:
    put(tmp_path / "s", *range(8))
    land_spec(LandingSource(tmp_path / "s", "S"), spec(kind, tmp_path, FIRST))
    return tmp_path


def change_sum(kind: str, path: Path) -> None:
    """Of the fourth order, as its owner would."""
    if kind == "delta":
        DeltaTable(str(path)).update(updates={"sum": "0.5"}, predicate="id = 3")
    elif kind == "parquet":
        change(path, "orders", lambda table: with_value(table, 3, "sum", 0.5))
    else:
        table = iceberg(path)
        rows = table.scan("id == 3").to_arrow()
        table.overwrite(with_value(rows, 0, "sum", 0.5), "id == 3")


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["iceberg", "delta", "parquet"])
def test_a_changed_column_of_bodies_is_found(kind: str, landed: Path) -> None:
    equal = verify(kind, landed)
    assert equal.is_clean, list(equal.differences.each())
    assert equal.differences.unparsed == 0
    assert {"sum", "user"} <= set(equal.columns)
    (schemas,) = (landed / "t").rglob("bodies-*.json")
    os.utime(schemas, (0, 0))
    done = run("lake", "expire", f"{kind}:{landed / 't'}", "--older-than", "0s")
    assert done.exit_code == 0, done.stderr
    assert verify(kind, landed).differences.unparsed == 0
    change_sum(kind, landed / "t")
    found = verify(kind, landed)
    (differs,) = found.differences.each()
    assert (differs.kind, differs.first, differs.rows) == (PARSED, 3, 1)
    done = run("lake", "verify", landed / "s", "--to", f"{kind}:{landed / 't'}", "--store-id", "S")
    assert done.exit_code == 1
    assert "1 ROWS DIFFER" in done.stdout


@pytest.mark.parametrize("kind", ["iceberg"])
def test_rows_are_compared_by_the_schema_under_which_they_landed(kind: str, landed: Path) -> None:
    """The later schema has another field of a struct, a wider integer, and one column less."""
    put(landed / "s", 8, 9)
    source = LandingSource(landed / "s", "S")
    land_spec(source, spec(kind, landed, LATER))
    put(landed / "s", 10, 11)
    land_spec(source, spec(kind, landed, FIRST))
    found = verify(kind, landed)
    assert [start > 0 for start, _ in found.position.bodies] == [False, True, True]
    assert found.is_clean, list(found.differences.each())
    assert found.differences.unparsed == 0
    assert {"ok", "n"} <= set(found.columns)
    table = iceberg(landed / "t")
    rows = table.scan("id == 9").to_arrow()
    table.overwrite(with_value(rows, 0, "n", None), "id == 9")
    (differs,) = verify(kind, landed).differences.each()
    assert (differs.kind, differs.rows) == (PARSED, 1)


@pytest.mark.parametrize("kind", ["parquet"])
def test_rows_of_an_unknown_schema_are_counted(kind: str, landed: Path) -> None:
    (file,) = (landed / "t" / "_lakelog").glob("bodies-*.json")
    text = file.read_bytes()
    file.write_bytes(text.replace(b"bigint", b"double").replace(b"sum", b"Sum"))
    with pytest.raises(Unreadable, match="was changed"):
        verify(kind, landed)
    file.unlink()
    found = verify(kind, landed)
    assert (found.is_clean, found.differences.unparsed) == (True, 8)
    done = run("lake", "verify", landed / "s", "--to", f"{kind}:{landed / 't'}", "--store-id", "S")
    assert "8 rows were not compared in the columns of their bodies" in done.stdout


@pytest.mark.parametrize("kind", ["iceberg"])
def test_a_column_that_somebody_made_anew_with_another_type(kind: str, landed: Path) -> None:
    """Neither of the two is compared: the table has no longer what landed first."""
    with iceberg(landed / "t").update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("ok")
    put(landed / "s", 8)
    land_spec(
        LandingSource(landed / "s", "S"), spec(kind, landed, FIRST.replace("ok boolean", "ok int"))
    )
    found = verify(kind, landed)
    assert found.is_clean, list(found.differences.each())
    assert "ok" not in found.columns


def test_columns_of_somebody_and_unknown_parsers_are_left_out(tmp_path: Path) -> None:
    put(tmp_path / "s", 1, 2)
    given = attrs.evolve(spec("delta", tmp_path, FIRST), parsers={"other": Even()})
    land_spec(LandingSource(tmp_path / "s", "S"), given)
    found = verify("delta", tmp_path)
    assert (found.is_clean, found.differences.unparsed) == (True, 0)  # all of odd length
    put(tmp_path / "s", 10)
    land_spec(LandingSource(tmp_path / "s", "S"), given)
    assert verify("delta", tmp_path).differences.unparsed == 1


REGISTRY = SchemaRegistry("http://localhost:1/x", None)
PARSERS: list[BodyParser] = [
    Whole(is_text=True),
    Whole(is_text=False),
    Json.of(LATER, "x"),
    Avro.of(json.dumps(avroschema.SCHEMA), "x", confluent=False),
    Avro(Schema("AVRO", '"a.B"', (("a.B", Schema("AVRO", '{"type": "int"}')),)), True, REGISTRY),
    Protobuf(b"\xff", "shop.Event"),
    RegistryProtobuf(b"\x00", "shop.Event", attrs.evolve(REGISTRY, form="serialized")),
]


def test_parsers_are_kept_as_they_were(tmp_path: Path) -> None:
    given: dict[str, Any] = {str(number): each for number, each in enumerate(PARSERS)}
    digest = recorded.keep(tmp_path / "t" / "data", {})
    assert (digest, list(tmp_path.iterdir())) == ("", [])
    (tmp_path / "t").mkdir()
    digest = recorded.keep(tmp_path / "t" / "data", {**given, "*": Even()})
    assert recorded.kept(tmp_path / "t" / "data", digest) == {**given, "*": None}
    assert digest == recorded.keep(tmp_path / "t" / "data", {"*": Even(), **given})
    secret = attrs.evolve(REGISTRY, auth="Basic c2VjcmV0")
    recorded.keep(tmp_path / "t" / "data", {"a": attrs.evolve(PARSERS[4], registry=secret)})  # type: ignore[misc]  # it has one
    assert not any(b"c2VjcmV0" in each.read_bytes() for each in tmp_path.rglob("*.json"))
