"""Schema files, and what columns are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from lakelog import Message
from lakelog.errors import SettingsError
from lakelog_lake.bodies.formats import parser_for
from lakelog_lake.bodies.json import Json
from lakelog_lake.bodies.json_schema import infer
from lakelog_lake.commands.lake import infer_schema
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.bodies import avroschema, protoschema
from plugins.lake.tests.bodies.parsing import error_of, parse, rows_of
from plugins.lake.tests.landing.table_specs import land_spec, per_topic, read_topic
from plugins.lake.tests.stores import open_small

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
    ({"properties": {"a": {"type": ["string", "integer"]}}}, "/properties/a: "),
    ({"properties": {"a": {"allOf": []}}}, "allOf is not supported"),
    ({"properties": {"a": {}}}, "/properties/a: "),
    ({"properties": {"a": True}}, "/properties/a: this is not a schema"),
    ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}, "a choice"),
    ({"properties": {"a": {"$ref": "#/b"}}}, "#/b is not in this file"),
    ({"properties": {"a": {"$ref": "#"}}}, "contains itself"),
    ({"properties": {"a": {"type": "string"}}, "required": True}, "required should be an array"),
    ({"properties": {"a": {"type": "string"}, "A": {"type": "string"}}}, "would both be column"),
    (
        {"properties": {"topic": {"type": "string"}, "body_topic": {"type": "string"}}},
        "would both be column",
    ),
    ("{", "not a supported schema"),
    ("id decimal(10,2)", "field 'id': type 'decimal' is not read"),
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
        ("protobuf:/not/there", "#pkg.Message"),
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


def test_string() -> None:
    bodies = [b"", "é😀".encode(), b"ab\xff", b"x" * 1000, b"\xc3"]
    for large in (False, True):
        found = parse(parser_for("string"), *bodies, large=large)
        assert found.columns["body"].to_pylist() == ["", "é😀", "x" * 1000]
        assert found.errors == (
            "byte 2: not UTF-8 (invalid start byte)",
            "byte 0: not UTF-8 (unexpected end of data)",
        )


def test_types_are_those_that_fit_all() -> None:
    found = infer(
        [
            b'{"id": 1, "x": 1, "big": 1, "n": null, "odd": 1, "o": {}, "l": [], "ok": true}',
            b'{"x": 1.5, "big": 9223372036854775808, "odd": "1", "l": [{"a": null}, {"a": "x"}]}',
            b"no JSON",
            b"[1]",
        ]
    )
    assert found.schema["properties"] == {
        "id": {"type": "integer"},
        "x": {"type": "number"},
        "big": {"type": "number"},
        "l": {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
        "ok": {"type": "boolean"},
    }
    assert found.left_out == (
        "/n: always null",
        "/odd: integer or string",
        "/o: nothing in it has a type",
    )
    assert (found.read, found.others) == (2, 2)


def test_text_that_is_a_time_everywhere_is_one() -> None:
    bodies = [b'{"a": "2026-01-02T03:04:05Z", "d": "2026-01-02", "s": "2026-01-02"}', b'{"s": "x"}']
    plain = {"type": "string"}
    assert list(infer(bodies, times=False).schema["properties"].values()) == [plain] * 3
    assert infer(bodies).schema["properties"] == {
        "a": {"type": "string", "format": "date-time"},
        "d": {"type": "string", "format": "date"},
        "s": plain,
    }


@pytest.mark.parametrize(
    ("bodies", "why"),
    [
        ([], "none of 0 bodies"),
        ([b"x", b"{}"], "none of 2 bodies"),
        ([json.dumps({str(n): n for n in range(2000)}).encode()], "more than 1000 fields"),
    ],
)
def test_bodies_without_a_schema(bodies: list[bytes], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        infer(bodies)


def test_the_command_prints_what_json_reads(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        for number in range(20):
            body = json.dumps({"number": number, f"of-{number % 2}": None if number < 9 else "x"})
            store.put(Message("events", body.encode(), queue_id=number % 3))
    app = typer.Typer()
    app.command()(infer_schema)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, [str(tmp_path / "store"), "--topic", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    (tmp_path / "schema.json").write_text(run("events"))
    parser = parser_for(f"json:{tmp_path / 'schema.json'}")
    assert parser.fields.names == ["number", "of_0", "of_1"]
    assert rows_of(parser, b'{"number": 5, "of-1": "y"}') == [
        {"number": 5, "of_0": None, "of_1": "y"}
    ]
    assert set(json.loads(run("events", "--messages", "5"))["properties"]) == {"number"}
    failed = CliRunner().invoke(app, [str(tmp_path / "store"), "--topic", "none"])
    assert "none of 0 bodies" in str(failed.exception)


DDL = (
    "id bigint not null, at timestamp, due date, x double, user struct<name: string, l: array<int>>"
)
JSON = b'{"id": 1, "at": "2026-01-02T03:04:05Z", "user": {"name": "x", "l": [1, null]}}'
GOOD = 20


@pytest.mark.sample(1)
def test_all_formats(kind: str, tmp_path: Path) -> None:
    bodies = {
        "json": JSON,
        "avro": avroschema.event(),
        "protobuf": protoschema.event(),
        "string": b"text",
    }
    (tmp_path / "x.ddl").write_text(DDL)
    (tmp_path / "x.avsc").write_text(json.dumps(avroschema.SCHEMA))
    (tmp_path / "x.desc").write_bytes(protoschema.descriptor_set())
    parsers = {
        "json": parser_for(f"json:{tmp_path}/x.ddl"),
        "avro": parser_for(f"avro:{tmp_path}/x.avsc"),
        "protobuf": parser_for(f"protobuf:{tmp_path}/x.desc#shop.Event"),
        "string": parser_for("string"),
    }
    with open_small(tmp_path / "store") as store:
        for topic, body in bodies.items():
            store.put_batch([Message(topic, body)] * GOOD + [Message(topic, b"\xff\xff")])
    land_spec(LandingSource(tmp_path / "store", "S"), per_topic(kind, tmp_path / "t", parsers))
    for topic, parser in parsers.items():
        rows = read_topic(kind, tmp_path / "t", topic)
        columns = parser.fields.names
        dead = read_topic(kind, tmp_path / "t", topic, "_dead_letters")
        assert dead["body"].to_pylist() == [b"\xff\xff"]
        assert dead["error"].null_count == 0
        assert rows.select(columns).to_pylist() == rows_of(parser, bodies[topic]) * GOOD
