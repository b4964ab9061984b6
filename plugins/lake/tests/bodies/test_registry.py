"""Bodies by a schema registry: Avro and Protobuf, evolved, referring to others, and broken."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from lakelog import Message
from lakelog.errors import SettingsError
from lakelog_lake.bodies import schema_registry
from lakelog_lake.bodies.formats import parser_for
from lakelog_lake.bodies.schema_registry import USER_INFO
from lakelog_lake.errors import RegistryUnreachable
from lakelog_lake.landing.targets import TableSpec
from lakelog_lake.tasks.task import LandingSource
from plugins.lake.tests.bodies import avroschema, protoschema
from plugins.lake.tests.bodies.parsing import error_of, parse, rows_of
from plugins.lake.tests.bodies.registry_server import RegistryServer, registry_server
from plugins.lake.tests.bodies.test_avro import ROW
from plugins.lake.tests.landing.table_specs import land_spec, read_dead
from plugins.lake.tests.landing.tables import read
from plugins.lake.tests.stores import open_small

OLD: Any = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}],
}
NEW: Any = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": "boolean", "default": False},
    ],
}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two registries of one port, one after the other, are two."""
    monkeypatch.setattr(schema_registry, "_FIRST_PAUSE_SECONDS", 0.001)
    schema_registry._SCHEMAS.clear()
    schema_registry._UNKNOWN.clear()


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as made:
        yield made


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def avro(schema: Any, value: Any, *others: Any) -> bytes:
    fastavro, file = import_module("fastavro"), BytesIO()
    named: dict[str, Any] = {}
    for each in others:
        fastavro.parse_schema(each, named_schemas=named)
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema, named_schemas=named), value)
    return file.getvalue()


def test_each_datum_is_read_by_the_schema_it_was_written_by(server: RegistryServer) -> None:
    old = server.register("orders-value", json.dumps(OLD))
    new = server.register("orders-value", json.dumps(NEW))
    parser = parser_for(f"avro-registry:{server.url}#orders-value")
    bodies = [
        framed(old, avro(OLD, {"id": 1, "gone": "x"})),
        framed(new, avro(NEW, {"id": 2, "paid": True})),
    ] * 50
    server.asked.clear()
    assert rows_of(parser, *bodies) == [{"id": 1, "paid": False}, {"id": 2, "paid": True}] * 50
    assert sorted(server.asked) == [f"/schemas/ids/{old}", f"/schemas/ids/{new}"]
    assert rows_of(parser, *bodies[:2]) == [{"id": 1, "paid": False}, {"id": 2, "paid": True}]
    assert len(server.asked) == 2, "an id is asked for once, also by a parser that travelled again"


def test_the_readers_schema_may_be_named(server: RegistryServer) -> None:
    """It may have every type."""
    number = server.register("events", json.dumps(avroschema.SCHEMA))
    whole = parser_for(f"avro-registry:{server.url}#id={number}")
    assert rows_of(whole, framed(number, avroschema.event())) == [ROW]
    old = server.register("a/b c", json.dumps(OLD))
    server.register("a/b c", json.dumps(NEW))
    body = framed(old, avro(OLD, {"id": 1, "gone": "x"}))
    for name in ("a/b c@1", f"id={old}"):
        parser = parser_for(f"avro-registry:{server.url}#{name}")
        assert rows_of(parser, body) == [{"id": 1, "gone": "x"}]


def test_an_avro_schema_may_refer_to_others(server: RegistryServer) -> None:
    inner = {"type": "record", "name": "in.Money", "fields": [{"name": "cents", "type": "long"}]}
    outer = {
        "type": "record",
        "name": "Bill",
        "fields": [{"name": "sum", "type": "in.Money"}, {"name": "tip", "type": "in.Money"}],
    }
    server.register("money", json.dumps(inner))
    reference = {"name": "in.Money", "subject": "money", "version": 1}
    number = server.register("bills", json.dumps(outer), references=[reference])
    value = {"sum": {"cents": 5}, "tip": {"cents": 1}}
    parser = parser_for(f"avro-registry:{server.url}#bills")
    assert rows_of(parser, framed(number, avro(outer, value, inner))) == [value]


def test_broken_bodies_and_unknown_ids_are_dead_letters(server: RegistryServer) -> None:
    number = server.register("orders", json.dumps(NEW))
    other = server.register(
        "texts",
        '{"type": "record", "name": "Other", "fields": [{"name": "text", "type": "string"}]}',
    )
    proto = server.register("proto", "", "PROTOBUF")
    parser = parser_for(f"avro-registry:{server.url}#orders")
    good = framed(number, avro(NEW, {"id": 2, "paid": True}))
    server.asked.clear()
    found = parse(
        parser,
        good,
        framed(99, b"x"),
        framed(99, b"y"),
        b"\1" + good[1:],
        b"\0\0",
        good[:-1],
        framed(other, b"\x02x"),
        framed(proto, b"\x00"),
        good + b"x",
    )
    assert found.good.tolist() == [True] + [False] * 8
    assert found.errors[0] == "the registry has no schema 99"
    assert server.asked.count("/schemas/ids/99") == 1
    assert "no Confluent header" in found.errors[2]
    assert "it ends within the datum" in found.errors[4]
    assert "is Protobuf, not Avro" in found.errors[6]
    assert "the datum ends here" in found.errors[7]


def test_a_registry_that_does_not_answer_makes_no_dead_letters(server: RegistryServer) -> None:
    number = server.register("orders", json.dumps(NEW))
    server.failing = 4
    parser = parser_for(f"avro-registry:{server.url}#orders")  # the fifth try is answered
    server.failing = 1000
    with pytest.raises(RegistryUnreachable, match="503 not now"):
        parse(parser, framed(number, avro(NEW, {"id": 1, "paid": True})))
    with pytest.raises(RegistryUnreachable, match="does not answer: "):
        parser_for("avro-registry:http://127.0.0.1:9#orders")


def test_who_asks_is_said(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.register("orders", json.dumps(NEW))
    server.user_info = "me:p@ss word"
    with pytest.raises(RegistryUnreachable, match="401") as caught:
        parser_for(f"avro-registry:{server.url}#orders")
    assert len(server.asked) == 1, "what does not pass is not tried again"
    assert USER_INFO in str(caught.value)
    within = server.url.replace("//", "//me:p%40ss%20word@")
    assert "p@ss" not in repr(parser_for(f"avro-registry:{within}#orders"))
    monkeypatch.setenv(USER_INFO, server.user_info)
    parser_for(f"avro-registry:{server.url}#orders")


def test_another_host_does_not_see_the_password(server: RegistryServer) -> None:
    server.register("s", json.dumps(NEW))
    with registry_server() as former:
        former.moved_to = server.url
        url = former.url.replace("//", "//me:secret@")
        parser_for(f"avro-registry:{url}#s")
        assert former.who[0] is not None
    assert server.who == [None]


def test_what_a_registry_lacks_is_told(server: RegistryServer) -> None:
    server.register("number", '"int"')
    server.register("proto", "", "PROTOBUF")
    for place, words in {
        f"{server.url}": "needs a subject",
        f"{server.url}#none": "Subject 'none' not found",
        f"{server.url}#number@2": "Version 2 not found",
        f"{server.url}#id=9": "no schema 9",
        f"{server.url}#number": "a body must be a record",
        f"{server.url}#proto": "is Protobuf, not Avro",
        "ftp://x#y": "a registry is at http",
    }.items():
        with pytest.raises(SettingsError, match=words):
            parser_for(f"avro-registry:{place}")


def proto_files(server: RegistryServer) -> int:
    """The event of the other tests; its file is in the registry without those of the library."""
    pb2 = import_module("google.protobuf.descriptor_pb2")
    (file,) = pb2.FileDescriptorSet.FromString(protoschema.descriptor_set(imports=False)).file
    text = base64.b64encode(file.SerializeToString()).decode()
    return server.register("events", text, "PROTOBUF")


EVENT_AT = b"\x02\x06"
"""One place, 3, in zig-zag: behind Item, Empty and Loop."""


def test_protobuf_of_every_type(server: RegistryServer, tmp_path: Path) -> None:
    number = proto_files(server)
    (tmp_path / "x.desc").write_bytes(protoschema.descriptor_set())
    plain = parser_for(f"protobuf:{tmp_path}/x.desc#shop.Event")
    parser = parser_for(f"protobuf-registry:{server.url}#events#shop.Event")
    body = framed(number, EVENT_AT + protoschema.event())
    assert rows_of(parser, body) == rows_of(plain, protoschema.event())
    first = parser_for(f"protobuf-registry:{server.url}#events@1")
    item = b"\x08\x05"
    assert rows_of(first, framed(number, b"\0" + item)) == [{"n": 5}]
    assert rows_of(first, framed(number, b"\x02\x00" + item)) == [{"n": 5}]
    assert error_of(first, body) == "it is a shop.Event, not a shop.Item"
    assert error_of(parser, framed(number, b"\x02\x63")).endswith("no message at index path [-50]")
    assert "ends within the index path" in error_of(parser, framed(number, b"\x02"))
    assert error_of(parser, framed(77, EVENT_AT)) == "the registry has no schema 77"


def test_a_protobuf_schema_may_refer_to_others(server: RegistryServer) -> None:
    pb2 = import_module("google.protobuf.descriptor_pb2")
    money = pb2.FileDescriptorProto(name="x", package="in", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    bill = pb2.FileDescriptorProto(name="y", syntax="proto3", dependency=["money.proto"])
    outer = bill.message_type.add(name="Outer")
    inner = outer.nested_type.add(name="Bill").field
    inner.add(name="sum", number=1, type=11, type_name=".in.Money", label=1)
    texts = [base64.b64encode(each.SerializeToString()).decode() for each in (money, bill)]
    server.register("money", texts[0], "PROTOBUF")
    reference = {"name": "money.proto", "subject": "money", "version": 1}
    number = server.register("bills", texts[1], "PROTOBUF", [reference])
    parser = parser_for(f"protobuf-registry:{server.url}#bills#Outer.Bill")
    body = framed(number, b"\x04\x00\x00" + b"\x0a\x02\x08\x05")
    assert rows_of(parser, body) == [{"sum": {"cents": 5}}]


def test_landing_waits_for_a_registry_and_loses_nothing(
    server: RegistryServer, tmp_path: Path
) -> None:
    number = server.register("orders", json.dumps(NEW))
    bodies = [framed(number, avro(NEW, {"id": n, "paid": True})) for n in range(20)]
    with open_small(tmp_path / "s") as store:
        store.put_batch([Message("orders", each) for each in [*bodies, framed(88, b"")]])
    parsers = {"*": parser_for(f"avro-registry:{server.url}#orders")}
    spec = TableSpec(f"parquet:{tmp_path / 't'}", parsers=parsers)
    server.failing = 1000
    with pytest.raises(RegistryUnreachable):
        land_spec(LandingSource(tmp_path / "s", "S"), spec)
    server.failing = 0
    land_spec(LandingSource(tmp_path / "s", "S"), spec)
    assert sorted(read("parquet", tmp_path / "t")["id"].to_pylist()) == list(range(20))
    assert read_dead("parquet", tmp_path / "t")["error"].to_pylist() == [
        "the registry has no schema 88"
    ]
