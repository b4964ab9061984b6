"""A descriptor set, as protoc would write it.

It is that of::

syntax = "proto3"; package shop;
enum Colour { RED = 0; BLUE = 1; }
message Item { int32 n = 1; }
message Empty {}
message Loop { Loop next = 1; }
message Event {
int64 id = 1; uint64 big = 2; uint32 wide = 3; string name = 4; bytes raw = 5; Colour colour = 6;
google.protobuf.Timestamp at = 7; google.protobuf.StringValue note = 8; Empty empty = 9;
repeated Colour colours = 10; repeated Item items = 11; map<string, Item> by_name = 12;
optional string maybe = 13; bool topic = 14; float f = 15; double d = 16; Item item = 17;
}
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_REPEATED = 3
_PLAIN = {"id": 3, "big": 4, "wide": 13, "name": 9, "raw": 12, "topic": 8, "f": 2, "d": 1}
_MESSAGE, _ENUM = 11, 14
_NAMED = {
    "colour": (_ENUM, ".shop.Colour"),
    "at": (_MESSAGE, ".google.protobuf.Timestamp"),
    "note": (_MESSAGE, ".google.protobuf.StringValue"),
    "empty": (_MESSAGE, ".shop.Empty"),
    "colours": (_ENUM, ".shop.Colour"),
    "items": (_MESSAGE, ".shop.Item"),
    "by_name": (_MESSAGE, ".shop.Event.ByNameEntry"),
    "item": (_MESSAGE, ".shop.Item"),
}
_MANY = ("colours", "items", "by_name")
_ORDER = (
    *("id", "big", "wide", "name", "raw", "colour", "at", "note", "empty", "colours", "items"),
    *("by_name", "maybe", "topic", "f", "d", "item"),
)


def descriptor_set(*, imports: bool = True) -> bytes:
    """The bytes of the file; without ``imports`` it lacks what comes with the library."""
    pb2 = import_module("google.protobuf.descriptor_pb2")
    made = pb2.FileDescriptorSet()
    file = made.file.add(name="shop.proto", package="shop", syntax="proto3")
    for each in ("timestamp", "wrappers"):
        library = import_module(f"google.protobuf.{each}_pb2").DESCRIPTOR
        file.dependency.append(library.name)
        if imports:
            library.CopyToProto(made.file.add())
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("RED", "BLUE")):
        colour.value.add(name=name, number=number)
    file.message_type.add(name="Item").field.add(name="n", number=1, type=5, label=1)
    file.message_type.add(name="Empty")
    loop = file.message_type.add(name="Loop").field
    loop.add(name="next", number=1, type=_MESSAGE, type_name=".shop.Loop", label=1)
    _event(file.message_type.add(name="Event"))
    data: bytes = made.SerializeToString()
    return data


def _event(event: Any) -> None:
    event.oneof_decl.add(name="_maybe")
    for number, name in enumerate(_ORDER, 1):
        field = event.field.add(name=name, number=number, label=_REPEATED if name in _MANY else 1)
        if name in _NAMED:
            field.type, field.type_name = _NAMED[name]
        elif name == "maybe":
            field.type, field.oneof_index, field.proto3_optional = 9, 0, True
        else:
            field.type = _PLAIN[name]
    entry = event.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=_MESSAGE, type_name=".shop.Item", label=1)


def event_class() -> Any:
    """Python's class of ``shop.Event``."""
    pool = import_module("google.protobuf.descriptor_pool").DescriptorPool()
    files = import_module("google.protobuf.descriptor_pb2").FileDescriptorSet.FromString(
        descriptor_set()
    )
    for file in (*files.file[1:], files.file[0]):
        pool.Add(file)
    factory = import_module("google.protobuf.message_factory")
    return factory.GetMessageClass(pool.FindMessageTypeByName("shop.Event"))


def event() -> bytes:
    """An event with everything but ``item``."""
    made = event_class()(
        id=-1, big=(1 << 64) - 1, wide=(1 << 32) - 1, name="é", raw=b"\xff", colour=1, maybe=""
    )
    made.at.seconds, made.at.nanos = -1, 999_999_999
    made.note.value = ""
    made.empty.SetInParent()
    made.colours.extend([0, 7])
    made.items.add(n=5)
    made.by_name["b"].n = 1
    made.by_name["a"].n = 2
    made.topic, made.f, made.d = True, 0.5, 0.25
    data: bytes = made.SerializeToString()
    return data
