"""Schema files, and what columns are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakelog.errors import SettingsError
from lakelog_lake.bodies import parser_for
from lakelog_lake.bodies.json import Json
from plugins.lake.tests.bodies.parsing import error_of, rows_of

PYDANTIC = {
    "$defs": {
        "User": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name"],
        }
    },
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "at": {"type": "string", "format": "date-time"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "user": {"$ref": "#/$defs/User"},
        "friends": {"type": "array", "items": {"$ref": "#/$defs/User"}},
        "score": {"type": ["number", "null"]},
    },
    "required": ["id", "note", "user", "score"],
}


def test_json_schema() -> None:
    parser = Json.of(json.dumps(PYDANTIC), "x")
    user = pa.struct([("name", pa.string()), ("age", pa.int64())])
    assert parser.fields == pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("note", pa.string()),
            ("user", user),
            ("friends", pa.list_(pa.field("element", user))),
            ("score", pa.float64()),
        ]
    )
    (row,) = rows_of(parser, b'{"id": 1, "user": {"name": "x"}}')
    assert row["user"] == {"name": "x", "age": None}
    assert error_of(parser, b'{"user": {"name": "x"}}').startswith("/id is required")
    assert error_of(parser, b'{"id": 1, "user": {}}').startswith("/user/name is required")
    assert error_of(parser, b'{"id": 1}').startswith("/user is required")


def test_ddl() -> None:
    parser = Json.of(
        "id BIGINT NOT NULL, -- the key\n `a b`: struct<x: array<date>, y: double>, t timestamp;",
        "x",
    )
    assert parser.fields == pa.schema(
        [
            ("id", pa.int64()),
            (
                "a_b",
                pa.struct([("x", pa.list_(pa.field("element", pa.date32()))), ("y", pa.float64())]),
            ),
            ("t", pa.timestamp("us", "UTC")),
        ]
    )
    (row,) = rows_of(parser, b'{"id": 1, "a b": {"y": 1}}')
    assert row["a_b"] == {"x": None, "y": 1.0}
    assert error_of(parser, b"{}").startswith("/id is required")


def test_names_that_messages_have_get_a_prefix() -> None:
    parser = Json.of("topic string, Tags string, body string, day int, s struct<topic: int>", "x")
    assert parser.fields.names == ["body_topic", "body_Tags", "body_body", "body_day", "s"]
    assert parser.fields.field("s").type.field(0).name == "topic"


SCHEMAS: list[tuple[Any, str]] = [
    ({"type": "string"}, "a body must be an object"),
    ({"type": "object"}, "/: an object needs properties"),
    ({"properties": {"a": {"type": "object"}}}, "/properties/a: an object needs properties"),
    ({"properties": {"a": {"type": "array"}}}, "/properties/a: an array needs items"),
    ({"properties": {"a": {"type": ["string", "integer"]}}}, "/properties/a: "),
    ({"properties": {"a": {"allOf": []}}}, "allOf is not supported"),
    ({"properties": {"a": {}}}, "/properties/a: "),
    ({"properties": {"a": True}}, "/properties/a: this is not a schema"),
    ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}, "a choice"),
    ({"properties": {"a": {"$ref": "#/b"}}}, "#/b is not in this file"),
    ({"properties": {"a": {"$ref": "b.json"}}}, "b.json is not in this file"),
    ({"properties": {"a": {"$ref": "#"}}}, "contains itself"),
    ({"properties": {"a": {"type": "string"}}, "required": True}, "required should be an array"),
    ({"properties": {"a": {"type": "string"}, "A": {"type": "string"}}}, "would both be column"),
    (
        {"properties": {"topic": {"type": "string"}, "body_topic": {"type": "string"}}},
        "would both be column",
    ),
    ("{", "not a supported schema"),
    ("id decimal(10,2)", "field 'id': type 'decimal' is not read"),
    ("m map<string,string>", "field 'm': type 'map' is not read"),
    ("id bigint,", "where the name of a field should be"),
    ("id bigint name", "where 'the end' should be"),
    ("id bigint not zero", "'zero' where 'null' should be"),
    ("id %", "character 2"),
    ("", "where the name of a field should be"),
]


@pytest.mark.parametrize(("schema", "why"), SCHEMAS)
def test_schemas_that_are_refused(tmp_path: Path, schema: Any, why: str) -> None:
    file = tmp_path / "schema"
    file.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    with pytest.raises(SettingsError) as caught:
        parser_for(f"json:{file}")
    assert why in str(caught.value)
    assert str(file) in str(caught.value)
    assert caught.value.key == "--body"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("xml:x", "no format of bodies has the name 'xml'"),
        ("variant", "use json with a schema file"),
        ("json", "json needs a schema file: json:PATH"),
        ("json:infer", "lakelog lake infer-schema"),
        ("json:/not/there", "no schema file"),
        ("avro:/not/there", "no schema file"),
        ("protobuf:/not/there", "#pkg.Message"),
        ("protobuf:/not/there#a.B", "no schema file"),
        ("string:x", "takes no schema file"),
    ],
)
def test_formats_that_are_refused(text: str, why: str) -> None:
    with pytest.raises(SettingsError, match="--body") as caught:
        parser_for(text)
    assert why in str(caught.value)


def test_a_file_of_bytes_is_no_schema(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="UTF-8"):
        parser_for(f"json:{tmp_path / 'x'}")
