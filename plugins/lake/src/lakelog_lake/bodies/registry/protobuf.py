"""Protocol Buffers bodies by a registry.

Fields are known by their numbers: a body is read by the reader's message, whichever version of it
it was written by. The schema that it names says that it is that message, and not another one.
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
"""As a file descriptor, and not as source text."""
_LIBRARY: Final = "google/protobuf/"
_MORE: Final = 0x80
_MOST_BITS: Final = 35
_FIRST: Final = (0,)


@attrs.frozen(slots=False)
class RegistryProtobuf(Protobuf):
    """A parser of bodies that begin with a header."""

    registry: SchemaRegistry

    @classmethod
    def at(cls, place: str) -> RegistryProtobuf:
        """The parser for ``URL#SUBJECT[@VERSION][#pkg.Message]``; else its first message.

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
            made.fields  # noqa: B018  # to see whether it can be made
        except UnknownSchema as error:
            raise refused(f"{registry.url} has no {name}: {error}", "--body") from error
        except KeyError as error:
            raise refused(f"no message is called {message}", name) from error
        except (DecodeError, TypeError, ValueError) as error:
            raise refused(f"no Protobuf schema that can be read: {error}", name) from error
        return made

    @cached_property
    def _names(self) -> dict[tuple[int, tuple[int, ...]], str]:
        """Of messages, by schema and place in it."""
        return {}

    def _decode(self, body: bytes) -> dict[str, Any]:
        number = header_of(body)
        places, start = _places(body, 5)
        key = (number, places)
        if key not in self._names:
            self._names[key] = _message(self.registry.by_id(number), places)
        if self._names[key] != self.message:
            raise ValueError(f"it is a {self._names[key]}, and not a {self.message}")
        return super()._decode(body[start:])


def _places(body: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Where the message is in its file, and where its bytes begin; 0 alone is the first one."""
    count, at = _number(body, at)
    if count < 0 or count > len(body):
        raise ValueError(f"byte 5: no list of {count} places of a message")
    places = []
    for _ in range(count):
        place, at = _number(body, at)
        places.append(place)
    return tuple(places) or _FIRST, at


def _number(body: bytes, at: int) -> tuple[int, int]:
    """A varint in zig-zag, and the byte behind it."""
    value = shift = 0
    while shift < _MOST_BITS:
        if at >= len(body):
            raise ValueError(f"byte {at}: it ends within the place of its message")
        value |= (body[at] & ~_MORE) << shift
        at += 1
        if not body[at - 1] & _MORE:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError(f"byte {at}: no number of the place of its message")


def _file(schema: Schema, name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if schema.kind != "PROTOBUF":
        raise ValueError(f"the registry's schema is of {schema.kind.title()}, and not of Protobuf")
    file = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    file.name = name
    return file


def _message(schema: Schema, places: tuple[int, ...]) -> str:
    """The full name of the message at a place; raises :class:`ValueError`."""
    file = _file(schema, "main")
    name, inside = file.package, file.message_type
    for place in places:
        if not 0 <= place < len(inside):
            raise ValueError(f"its schema has no message at the place {list(places)}")
        name = f"{name}.{inside[place].name}" if name else inside[place].name
        inside = inside[place].nested_type
    return str(name)


def _descriptors(schema: Schema) -> bytes:
    """A descriptor set of a schema with all that it refers to, and what of it is the library's."""
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
