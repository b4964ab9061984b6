"""Avro bodies as columns."""

from __future__ import annotations

import json
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from lakelog.errors import SettingsError
from lakelog_lake.bodies.base import BodyParser
from lakelog_lake.bodies.formats import parser_for
from plugins.lake.tests.bodies import avroschema
from plugins.lake.tests.bodies.avroschema import EVENT, SCHEMA
from plugins.lake.tests.bodies.parsing import error_of, parse, rows_of

ROW = {
    **{key: value for key, value in EVENT.items() if key != "topic"},
    "uuid": str(UUID(int=5)),
    "by_name": [("x", {"name": "x", "likes": None})],
    "body_topic": 0.5,
}


@pytest.fixture
def event() -> bytes:
    return avroschema.event()


def _parser(folder: Path, schema: Any, kind: str = "avro") -> BodyParser:
    (folder / "x.avsc").write_text(json.dumps(schema))
    return parser_for(f"{kind}:{folder / 'x.avsc'}")


def test_a_datum_is_a_row(tmp_path: Path, event: bytes) -> None:
    parser = _parser(tmp_path, SCHEMA)
    assert rows_of(parser, event, event) == [ROW, ROW]
    assert parser.fields.field("at").type == pa.timestamp("us", "UTC")
    assert parser.fields.field("price").type == pa.decimal128(9, 2)


def test_bad_bodies_are_told(tmp_path: Path, event: bytes) -> None:
    parser = _parser(tmp_path, SCHEMA)
    size = len(event)
    found = parse(parser, event[:-1], event, event + b"x", b"", b"\x02\x04")
    assert found.good.tolist() == [False, True, False, False, False]
    assert "it ends within the datum" in found.errors[0]
    assert found.errors[1] == f"byte {size}: the datum ends here, before the end of the body"
    assert found.errors[3] == "byte 2: no such symbol of an enum, or branch of a union"


def test_confluents_header(tmp_path: Path, event: bytes) -> None:
    parser = _parser(tmp_path, SCHEMA, "avro-confluent")
    assert rows_of(parser, b"\0\0\0\1\2" + event) == [ROW]
    for body in (event, b"\1\0\0\0\0" + event, b"\0\0"):
        assert error_of(parser, body).startswith("byte 0: no Confluent header")
    assert "ends within the datum" in error_of(parser, b"\0\0\0\1\2")


def test_a_value_beyond_its_type(tmp_path: Path) -> None:
    """The year 30000 is a long, and a date in Avro; Python has none."""
    fastavro, file = import_module("fastavro"), BytesIO()
    schema: Any = {"type": "record", "name": "E", "fields": [{"name": "i", "type": "long"}]}
    fastavro.schemaless_writer(file, schema, {"i": 900_000_000_000_000_000})
    schema["fields"][0]["type"] = {"type": "long", "logicalType": "timestamp-millis"}
    found = parse(_parser(tmp_path, schema), file.getvalue(), b"\x02")
    assert found.good.tolist() == [False, True]


def _record(kind: Any) -> Any:
    return {"type": "record", "name": "E", "fields": [{"name": "f", "type": kind}]}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("string", "a body must be a record"),
        (_record(["string", "int"]), "/f: a union is only supported"),
        (_record("null"), "/f: type null is not supported"),
        (_record(["null", "E"]), "/f: record E contains itself"),
        (_record("Nobody"), "Nobody"),
        (_record({"type": "record", "name": "F", "fields": []}), "/f: record F has no fields"),
        (_record({"type": "fixed", "name": "F", "size": 0}), "/f: a fixed of 0 bytes"),
        ({"type": "record", "name": "E"}, "not a supported Avro schema"),
    ],
)
def test_schemas_that_are_refused(tmp_path: Path, schema: Any, why: str) -> None:
    with pytest.raises(SettingsError, match="--body") as caught:
        _parser(tmp_path, schema)
    assert why in str(caught.value)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(SettingsError, match=r"lakelog-lake\[avro\]"):
        _parser(tmp_path, SCHEMA)
