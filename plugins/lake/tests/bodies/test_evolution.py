"""Schemas that change: a body of one schema, read by another, is the right row or a dead letter.

Avro's rules of resolution, with a registry; Protocol Buffers' compatible types; and the bounds of
what a column can have. Nothing of it is a wrong value: no number is cut off, or is a default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import pytest

from lakelog import Message
from lakelog_lake.bodies.base import BodyParser
from lakelog_lake.bodies.formats import parser_for
from lakelog_lake.bodies.json import Json
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.log.wanted import EVERYTHING
from lakelog_lake.tasks.task import LandingSource
from lakelog_lake.verify.landed_table import all_opened
from lakelog_lake.verify.verify import VerifyRequest, verify_here
from plugins.lake.tests.bodies.parsing import error_of, rows_of
from plugins.lake.tests.bodies.registry_server import RegistryServer, registry_server
from plugins.lake.tests.bodies.test_registry import avro, framed
from plugins.lake.tests.landing.table_specs import land_spec
from plugins.lake.tests.landing.tables import read
from plugins.lake.tests.stores import open_small


@attrs.frozen
class Dead:
    """A dead letter, whose error has ``why``."""

    why: str


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    with registry_server() as made:
        yield made


def check(parser: BodyParser, body: bytes, expected: object) -> None:
    if isinstance(expected, Dead):
        assert expected.why in error_of(parser, body)
    else:
        assert rows_of(parser, body) == [expected]


# --- Avro: the writer's type, the reader's type, a value, and the value of the column ---


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def time(unit: str) -> dict[str, Any]:
    return {"type": "long", "logicalType": f"timestamp-{unit}"}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def inner(*fields: dict[str, Any]) -> dict[str, Any]:
    return record(*fields, name="N")


DATE = {"type": "int", "logicalType": "date"}
X, LONG_X = {"name": "x", "type": "int"}, {"name": "x", "type": "long"}
AT = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
AT_MS = 1_767_323_045_678
OPTIONAL = ["null", "int"]
AVRO: list[tuple[str, Any, Any, Any, Any]] = [
    ("int to long", "int", "long", -5, -5),
    ("int to double", "int", "double", -5, -5.0),
    ("long to double", "long", "double", 1 << 62, float(1 << 62)),
    ("float to double", "float", "double", 0.5, 0.5),
    ("string to bytes", "string", "bytes", "é", "é".encode()),
    ("bytes to string", "bytes", "string", "é".encode(), "é"),
    ("bytes that are no string", "bytes", "string", b"\xff", Dead("decode byte 0xff")),
    ("long to int", "long", "int", 5, Dead("Schema mismatch")),
    ("double to float", "double", "float", 1e300, Dead("Schema mismatch")),
    ("int to string", "int", "string", 1, Dead("Schema mismatch")),
    ("a symbol more to read", enum("X"), enum("X", "Y"), "X", "X"),
    ("a symbol more written", enum("X", "Y"), enum("X"), "Y", Dead("Y not found")),
    ("a symbol's default", enum("X", "Y"), enum("X", default="X"), "Y", "X"),
    ("symbols in another order", enum("X", "Y"), enum("Y", "X"), "X", "X"),
    ("optional to required", OPTIONAL, "int", 1, 1),
    ("null to required", OPTIONAL, "int", None, Dead("mismatch")),
    ("required to optional", "int", OPTIONAL, 1, 1),
    ("order of a union", OPTIONAL, ["int", "null"], 1, 1),
    ("a wider union", OPTIONAL, ["null", "long"], 1, 1),
    ("a branch more", [*OPTIONAL, "string"], OPTIONAL, "s", Dead("mismatch")),
    ("a nested field", inner(X), inner(LONG_X), {"x": 1}, {"x": 1}),
    (
        "a nested field more",
        {"type": "array", "items": inner(X)},
        {"type": "array", "items": inner(X, {"name": "y", "type": OPTIONAL, "default": None})},
        [{"x": 1}],
        [{"x": 1, "y": None}],
    ),
    (
        "a map",
        {"type": "map", "values": "int"},
        {"type": "map", "values": "long"},
        {"k": 1},
        [("k", 1)],
    ),
    ("long to timestamp-millis", "long", time("millis"), AT_MS, AT),
    ("long to timestamp-micros", "long", time("micros"), AT_MS * 1000, AT),
    ("millis to micros", time("millis"), time("micros"), AT, AT),
    ("micros to millis", time("micros"), time("millis"), AT, AT),
    ("a time of no year", "long", time("millis"), 1 << 62, Dead("years 1 to 9999")),
    ("int to date", "int", DATE, 20455, date(2026, 1, 2)),
    ("a date of no year", "int", DATE, 1 << 30, Dead("years 1 to 9999")),
    ("a time no more", time("millis"), "long", AT, Dead("does not fit its column")),
    ("date to time", DATE, time("millis"), date(2026, 1, 2), Dead("does not fit")),
    ("more digits", decimal(9, 2), decimal(12, 2), Decimal("1.25"), Decimal("1.25")),
    ("too many digits", decimal(12, 2), decimal(4, 2), Decimal("12345.25"), Dead("does not fit")),
    ("digits cut off", decimal(9, 4), decimal(9, 2), Decimal("1.2525"), Dead("data loss")),
    ("bytes to decimal", "bytes", decimal(9, 2), b"\xff", Decimal("-0.01")),
]


def avro_parser(server: RegistryServer, name: str, writer: Any, reader: Any) -> tuple[Any, int]:
    """The parser of the newest version of a subject, and the id of the version before."""
    number = server.register(name, json.dumps(writer))
    server.register(name, json.dumps(reader))
    return parser_for(f"avro-registry:{server.url}#{name}"), number


@pytest.mark.parametrize(("name", "writer", "reader", "value", "expected"), AVRO)
def test_types_of_avro(
    server: RegistryServer, name: str, writer: Any, reader: Any, value: Any, expected: Any
) -> None:
    old, new = (record({"name": "a", "type": each}) for each in (writer, reader))
    parser, number = avro_parser(server, name, old, new)
    row = expected if isinstance(expected, Dead) else {"a": expected}
    check(parser, framed(number, avro(old, {"a": value})), row)


DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("string", "d", "d"),
    ("double", 1, 1.0),
    ("bytes", "\u00ff", b"\xff"),
    ({"type": "fixed", "name": "F", "size": 1}, "\u00ff", b"\xff"),
    (decimal(9, 2), "\u007d", Decimal("1.25")),
    (time("millis"), AT_MS, AT),
    (DATE, 20455, date(2026, 1, 2)),
    (inner(X, {"name": "y", "type": "int", "default": 3}), {"x": 7}, {"x": 7, "y": 3}),
    (["null", "int"], None, None),
]


@pytest.mark.parametrize(("kind", "default", "expected"), DEFAULTS)
def test_defaults_of_avro(server: RegistryServer, kind: Any, default: Any, expected: Any) -> None:
    old = record(X)
    new = record(X, {"name": "a", "type": kind, "default": default})
    parser, number = avro_parser(server, f"default {kind}", old, new)
    check(parser, framed(number, avro(old, {"x": 1})), {"x": 1, "a": expected})


def test_fields_of_avro(server: RegistryServer) -> None:
    more = {"name": "b", "type": "string"}
    renamed = {"name": "y", "type": "int", "aliases": ["x"]}
    for number, (writer, reader, value, expected) in enumerate(
        [
            (record(X), record(X, more), {"x": 1}, Dead("No default value for field b")),
            (record(X, more), record(X), {"x": 1, "b": "s"}, {"x": 1}),
            (record(X), record(renamed), {"x": 1}, {"y": 1}),
            (record(X), record(X, name="Q", aliases=["R"]), {"x": 1}, {"x": 1}),
            (record(X), record(X, name="Q"), {"x": 1}, Dead("mismatch")),
        ]
    ):
        parser, written = avro_parser(server, f"fields {number}", writer, reader)
        check(parser, framed(written, avro(writer, value)), expected)


# --- Protocol Buffers: the same, by the numbers of FieldDescriptorProto.TYPE_... ---

DOUBLE, FLOAT, INT64, UINT64, INT32, BOOL, STRING, BYTES = 1, 2, 3, 4, 5, 8, 9, 12
UINT32, SINT32, SINT64 = 13, 17, 18
OTHER_TYPE = Dead("/a: number 1 has another type in the body")
TOO_LARGE = Dead("does not fit its column")
PROTOBUF: list[tuple[str, int, int, Any, Any]] = [
    ("int32 to int64", INT32, INT64, -5, -5),
    ("int64 to int32", INT64, INT32, -5, -5),
    ("int64 cut off", INT64, INT32, (1 << 40) + 7, TOO_LARGE),
    ("int64 of another sign", INT64, INT32, 1 << 31, TOO_LARGE),
    ("uint32 of another sign", UINT32, INT32, (1 << 32) - 1, TOO_LARGE),
    ("int32 of another sign", INT32, UINT32, -5, TOO_LARGE),
    ("sint64 to sint32", SINT64, SINT32, -3, -3),
    ("sint64 cut off", SINT64, SINT32, -(1 << 40), TOO_LARGE),
    ("int to bool", INT32, BOOL, 256, True),
    ("string to bytes", STRING, BYTES, "é", "é".encode()),
    ("bytes to string", BYTES, STRING, b"\xff", Dead("bad UTF-8")),
    ("int to string", INT32, STRING, 5, OTHER_TYPE),
    ("float to double", FLOAT, DOUBLE, 0.5, OTHER_TYPE),
    ("an infinite number", DOUBLE, DOUBLE, float("inf"), float("inf")),
]


def proto(*fields: tuple[str, int, Any], oneof: bool = False, many: bool = False) -> bytes:
    """A descriptor set with the message ``p.M`` of fields (name, number, type)."""
    pb2 = import_module("google.protobuf.descriptor_pb2")
    made = pb2.FileDescriptorSet()
    library = import_module("google.protobuf.timestamp_pb2").DESCRIPTOR
    library.CopyToProto(made.file.add())
    file = made.file.add(name="m.proto", package="p", syntax="proto3", dependency=[library.name])
    message = file.message_type.add(name="M")
    if oneof:
        message.oneof_decl.add(name="one")
    for name, number, kind in fields:
        field = message.field.add(name=name, number=number, label=3 if many else 1)
        if isinstance(kind, str):
            field.type, field.type_name = 11, kind
        else:
            field.type = kind
        if oneof:
            field.oneof_index = 0
    data: bytes = made.SerializeToString()
    return data


def proto_parser(folder: Path, descriptors: bytes) -> BodyParser:
    (folder / "m.desc").write_bytes(descriptors)
    return parser_for(f"protobuf:{folder / 'm.desc'}#p.M")


def message(descriptors: bytes, fill: Callable[[Any], object]) -> bytes:
    pool = import_module("google.protobuf.descriptor_pool").DescriptorPool()
    pb2 = import_module("google.protobuf.descriptor_pb2")
    for file in pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    factory = import_module("google.protobuf.message_factory")
    made = factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))()
    fill(made)
    data: bytes = made.SerializeToString()
    return data


@pytest.mark.parametrize(("name", "writer", "reader", "value", "expected"), PROTOBUF)
def test_types_of_protobuf(
    tmp_path: Path, name: str, writer: int, reader: int, value: Any, expected: Any
) -> None:
    body = message(proto(("a", 1, writer)), lambda made: setattr(made, "a", value))
    row = expected if isinstance(expected, Dead) else {"a": expected}
    check(proto_parser(tmp_path, proto(("a", 1, reader))), body, row)
    if expected is OTHER_TYPE:
        return  # many of them may be the bytes of one string
    many = message(proto(("a", 1, writer), many=True), lambda made: made.a.append(value))
    row = expected if isinstance(expected, Dead) else {"a": [expected]}
    check(proto_parser(tmp_path, proto(("a", 1, reader), many=True)), many, row)


def test_fields_of_protobuf(tmp_path: Path) -> None:
    """Added, removed, in a oneof and out of it, single and repeated."""
    one, two = proto(("a", 1, INT32)), proto(("a", 1, INT32), ("b", 2, STRING))
    choice = proto(("a", 1, INT32), ("b", 2, STRING), oneof=True)

    def both(made: Any) -> None:
        made.a, made.b = 1, "x"

    check(proto_parser(tmp_path, one), message(two, both), {"a": 1})
    check(proto_parser(tmp_path, two), message(choice, both), {"a": 0, "b": "x"})
    check(proto_parser(tmp_path, choice), message(two, both), {"a": None, "b": "x"})
    body = message(one, lambda made: setattr(made, "a", 1))
    check(proto_parser(tmp_path, two), body, {"a": 1, "b": ""})
    many = proto(("a", 1, INT32), many=True)
    check(proto_parser(tmp_path, many), body, {"a": [1]})
    packed = message(many, lambda made: made.a.extend((1, 2)))
    check(proto_parser(tmp_path, one), packed, OTHER_TYPE)


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [(253_402_300_800, 0), (-62_135_596_801, 0), (1 << 62, 0), (1, -5), (1, 1_000_000_000)],
)
def test_times_of_protobuf_that_are_none(tmp_path: Path, seconds: int, nanos: int) -> None:
    schema = proto(("a", 1, ".google.protobuf.Timestamp"))

    def fill(made: Any) -> None:
        made.a.seconds, made.a.nanos = seconds, nanos

    assert error_of(proto_parser(tmp_path, schema), message(schema, fill))


# --- JSON ---

TIMES = Json.of("t timestamp, d date, s string", "x")


@pytest.mark.parametrize(
    "body",
    [
        '{"t":"0000-01-01T00:00:00Z"}',
        '{"t":"0001-01-01T00:00:00+05:00"}',
        '{"t":"9999-12-31T23:59:59-05:00"}',
        '{"d":"0000-01-01"}',
    ],
)
def test_a_time_of_no_year_is_told(body: str) -> None:
    assert "is not a string with a" in error_of(TIMES, body.encode())


def test_half_of_a_pair_of_no_column_is_no_hindrance() -> None:
    (row,) = rows_of(TIMES, b'{"x":"\\ud800","s":"a","y":{"z":["\\udc00"]}}')
    assert row["s"] == "a"
    assert "surrogate" in error_of(TIMES, b'{"s":"\\ud800","x":"\\ud800"}')


# --- while messages land ---

DATE_FIELD = {"name": "d", "type": DATE, "default": 1}
NOTE = {"name": "note", "type": "string", "default": "none"}


def test_a_schema_that_changes_while_messages_land(server: RegistryServer, tmp_path: Path) -> None:
    """Bodies of both schemas before and after the restart with the later one, and back."""
    old = record(X, {"name": "n", "type": inner(X)})
    new = record(LONG_X, {"name": "n", "type": inner(X, DATE_FIELD)}, NOTE)
    first = server.register("landing", json.dumps(old))
    spec = TableSpec(f"iceberg:{tmp_path / 't'}")
    source = LandingSource(tmp_path / "s", "S")

    def land(*bodies: bytes) -> None:
        with open_small(source.path) as store:
            store.put_batch([Message("a", body) for body in bodies])
        parser = parser_for(f"avro-registry:{server.url}#landing")
        land_spec(source, attrs.evolve(spec, parsers={"a": parser}))

    of_old = framed(first, avro(old, {"x": 1, "n": {"x": 2}}))
    land(of_old, b"none")
    second = server.register("landing", json.dumps(new))
    later = {"x": 1 << 40, "n": {"x": 3, "d": date(2026, 1, 2)}, "note": "new"}
    land(of_old, framed(second, avro(new, later)))
    server.register("landing", json.dumps(old))
    land(of_old, framed(second, avro(new, {**later, "x": 5})))
    rows = read("iceberg", tmp_path / "t").sort_by("physical_offset").to_pylist()
    assert [(row["x"], row["n"], row["note"]) for row in rows] == [
        (1, {"x": 2, "d": None}, None),
        (1, {"x": 2, "d": date(1970, 1, 2)}, "none"),
        (1 << 40, {"x": 3, "d": date(2026, 1, 2)}, "new"),
        (1, {"x": 2, "d": None}, None),
    ]
    (table,) = all_opened(spec.to)
    asked = VerifyRequest(source.path, "S", table.table, EVERYTHING, table.dead_letters)
    found = verify_here(asked)
    assert found.is_clean, list(found.differences.each())
    assert found.differences.unparsed == 0
