"""Protocol Buffers bodies of a registry.

Fields are identified by number. So each body is decoded by the reader's message, for any version of
the schema. The schema in the body's header only serves to check the message's name.
"""

from __future__ import annotations

import base64
from functools import cached_property
from importlib import import_module
from typing import Any, Final

import attrs

from lakelog_lake.bodies.names import needs, refused
from lakelog_lake.bodies.protobuf import Protobuf
from lakelog_lake.bodies.registry.client import (
    Schema,
    SchemaRegistry,
    UnknownSchema,
    header_of,
    split,
)

_SERIALIZED: Final = "serialized"
"""Requests a file descriptor instead of source text."""
_LIBRARY: Final = "google/protobuf/"
_MORE: Final = 0x80
_MOST_BITS: Final = 35
_FIRST: Final = (0,)


@attrs.frozen(slots=False)
class RegistryProtobuf(Protobuf):
    """A parser of Protocol Buffers bodies with Confluent's header."""

    registry: SchemaRegistry

    @classmethod
    def at(cls, place: str) -> RegistryProtobuf:
        """The parser for ``URL#SUBJECT[@VERSION][#pkg.Message]``; by default its first message.

        Raises :class:`~lakelog.errors.SettingsError` and
        :class:`~lakelog_lake.errors.RegistryUnreachable`.
        """
        try:
            from google.protobuf.message import DecodeError
        except ImportError as error:
            raise needs("protobuf", "protobuf") from error
        registry, name, message = split(place, "protobuf-registry", _SERIALIZED)
        try:
            schema = registry.named(name)
            descriptors = _descriptors(schema)
            made = cls(descriptors, message or _message(schema, _FIRST), registry)
            made.fields  # noqa: B018  # raises early if it cannot be made
        except UnknownSchema as error:
            raise refused(f"{registry.url} has no {name}: {error}", "--body") from error
        except KeyError as error:
            raise refused(f"there is no message {message}", name) from error
        except (DecodeError, TypeError, ValueError) as error:
            raise refused(f"not a supported Protobuf schema: {error}", name) from error
        return made

    @cached_property
    def _names(self) -> dict[tuple[int, tuple[int, ...]], str]:
        """Full names of messages, by schema id and index path."""
        return {}

    def _decode(self, body: bytes) -> dict[str, Any]:
        number = header_of(body)
        places, start = _places(body, 5)
        key = (number, places)
        if key not in self._names:
            self._names[key] = _message(self.registry.by_id(number), places)
        if self._names[key] != self.message:
            raise ValueError(f"it is a {self._names[key]}, not a {self.message}")
        return super()._decode(body[start:])


def _places(body: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The index path of the message, and the offset of its bytes; a single 0 is path [0]."""
    count, at = _number(body, at)
    if count < 0 or count > len(body):
        raise ValueError(f"byte 5: not an index path of {count} entries")
    places = []
    for _ in range(count):
        place, at = _number(body, at)
        places.append(place)
    return tuple(places) or _FIRST, at


def _number(body: bytes, at: int) -> tuple[int, int]:
    """A zig-zag varint, and the offset behind it."""
    value = shift = 0
    while shift < _MOST_BITS:
        if at >= len(body):
            raise ValueError(f"byte {at}: it ends within the index path of its message")
        value |= (body[at] & ~_MORE) << shift
        at += 1
        if not body[at - 1] & _MORE:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError(f"byte {at}: invalid number in the index path of its message")


def _file(schema: Schema, name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if schema.kind != "PROTOBUF":
        raise ValueError(f"the registry's schema is {schema.kind.title()}, not Protobuf")
    file = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    file.name = name
    return file


def _message(schema: Schema, places: tuple[int, ...]) -> str:
    """The full name of the message at an index path; raises :class:`ValueError`."""
    file = _file(schema, "main")
    name, inside = file.package, file.message_type
    for place in places:
        if not 0 <= place < len(inside):
            raise ValueError(f"its schema has no message at index path {list(places)}")
        name = f"{name}.{inside[place].name}" if name else inside[place].name
        inside = inside[place].nested_type
    return str(name)


def _descriptors(schema: Schema) -> bytes:
    """A descriptor set of a schema, its references, and their imports from Google's library."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    files: dict[str, Any] = {}

    def add(name: str, each: Schema) -> None:
        files[name] = _file(each, name)
        for other, inner in each.references:
            if other not in files:
                add(other, inner)

    add("lakelog-main.proto", schema)
    waiting = [name for file in files.values() for name in file.dependency]
    while waiting:
        name = waiting.pop()
        if name in files or not name.startswith(_LIBRARY):
            continue
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        files[name] = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(files[name])
        waiting += files[name].dependency
    return bytes(FileDescriptorSet(file=files.values()).SerializeToString())
