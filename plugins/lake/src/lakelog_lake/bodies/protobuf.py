"""Protocol Buffers bodies as typed columns: each body is one message without a length prefix.

The schema is a descriptor set (``protoc --include_imports --descriptor_set_out=FILE``) and the name
of a message. Unknown fields are skipped, as usual for this format, so arbitrary bytes often parse
as some message. A known field that has another wire type in the body, and a number that does not
fit its column, make the body invalid: the library would return a default, or cut bits off.

With a registry, each body is decoded by the reader's message, for any version of the schema, as
fields are identified by number. The schema in the body's header only serves to check the message's
name.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import pyarrow as pa

from lakelog_lake.bodies import schema_registry
from lakelog_lake.bodies.base import Rowwise, as_it_is, column_names, micros, needs, refused

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

Step: TypeAlias = Callable[[Any], Any]
"""Converts a value of the library to its Arrow type."""
_PACKAGE: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_PACKAGE}{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def columns_of(message: Descriptor) -> tuple[pa.Schema, Step]:
    """The columns of a message; raises :class:`ValueError` with the place in it."""
    if not message.fields:
        raise ValueError(f"{message.full_name} has no fields")
    kind, step = _struct(message, "", ())
    return pa.schema(list(kind)), step


def _struct(message: Descriptor, at: str, inside: tuple[str, ...]) -> tuple[pa.DataType, Step]:
    if message.full_name in inside:
        raise ValueError(f"{at}: {message.full_name} contains itself: no column can")
    from google.protobuf.unknown_fields import UnknownFieldSet

    inside = (*inside, message.full_name)
    names = column_names((field.name for field in message.fields), are_columns=not at)
    made = [_field(field, f"{at}/{field.name}", inside) for field in message.fields]
    kind = pa.struct([(name, type_) for name, (type_, _) in zip(names, made, strict=True)])
    steps = [
        (name, field.name, field.has_presence, step)
        for name, field, (_, step) in zip(names, message.fields, made, strict=True)
    ]

    fields = {field.number: field.name for field in message.fields}

    def values(of: Any) -> dict[str, Any]:
        unknown: Any = UnknownFieldSet(of)
        for each in unknown:
            if each.field_number in fields:
                name = f"{at}/{fields[each.field_number]}"
                raise ValueError(f"{name}: number {each.field_number} has another type in the body")
        return {
            name: None if presence and not of.HasField(key) else step(getattr(of, key))
            for name, key, presence, step in steps
        }

    return kind, values


def _field(field: FieldDescriptor, at: str, inside: tuple[str, ...]) -> tuple[pa.DataType, Step]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map(field.message_type, at, inside)
    kind, step = _one(field, at, inside)
    if not field.is_repeated:
        return kind, step
    return pa.list_(pa.field("element", kind)), lambda values: [step(each) for each in values]


def _map(entry: Descriptor, at: str, inside: tuple[str, ...]) -> tuple[pa.DataType, Step]:
    key, _ = _one(entry.fields_by_name["key"], at, inside)
    kind, step = _one(entry.fields_by_name["value"], at, inside)

    def pairs(values: Any) -> list[tuple[Any, Any]]:
        return [(each, step(values[each])) for each in sorted(values)]

    return pa.map_(key, kind), pairs


def _one(field: FieldDescriptor, at: str, inside: tuple[str, ...]) -> tuple[pa.DataType, Step]:
    if field.message_type is not None:
        return _message(field.message_type, at, inside)
    if field.enum_type is not None:
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return pa.string(), lambda number: names.get(number) or str(number)
    if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
        return pa.decimal128(20, 0), Decimal
    return _SCALARS[field.cpp_type] if field.type != field.TYPE_BYTES else pa.binary(), as_it_is


def _message(message: Descriptor, at: str, inside: tuple[str, ...]) -> tuple[pa.DataType, Step]:
    if message.full_name == f"{_PACKAGE}Timestamp":
        return pa.timestamp("us", "UTC"), _micros
    if message.full_name in _WRAPPERS:
        kind, step = _one(message.fields_by_name["value"], at, inside)
        return kind, lambda wrapper: step(wrapper.value)
    if not message.fields:
        return pa.bool_(), lambda _: True
    return _struct(message, at, inside)


def _micros(time: Any) -> int:
    if not 0 <= time.nanos < _SECOND_NS:
        raise ValueError(f"{time.nanos} is not a number of nanoseconds of a timestamp")
    return micros(time.seconds * 1_000_000 + time.nanos // 1000)


_SECOND_NS: Final = 1_000_000_000


# By the number of the type in Python's library (FieldDescriptor.CPPTYPE_...).
_SCALARS: Final = {
    1: pa.int32(),
    2: pa.int64(),
    3: pa.int64(),  # uint32
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
    9: pa.string(),
}


@contextmanager
def _supported(what: str, message: str, source: str) -> Iterator[None]:
    """Convert errors of making columns to :class:`~lakelog.errors.SettingsError`."""
    try:
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise needs("protobuf", "protobuf") from error
    try:
        yield
    except KeyError as error:
        raise refused(f"there is no message {message}", source) from error
    except (DecodeError, TypeError, ValueError) as error:
        raise refused(f"not a {what}: {error}", source) from error


@attrs.frozen(slots=False)
class Protobuf(Rowwise):
    """A parser of Protocol Buffers bodies.

    :ivar descriptors: a serialised ``FileDescriptorSet``
    :ivar message: the full name of the message in it
    """

    descriptors: bytes
    message: str

    @classmethod
    def of(cls, descriptors: bytes, message: str, source: str) -> Protobuf:
        """Make the parser; raises :class:`~lakelog.errors.SettingsError`."""
        made = cls(descriptors, message)
        with _supported("readable descriptor set", message, source):
            made.fields  # noqa: B018  # raises early if it cannot be made
        return made

    def _descriptor(self, *, is_wide: bool) -> Descriptor:
        from google.protobuf import descriptor_pb2, descriptor_pool

        pool = descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet.FromString(self.descriptors).file
        for file in _in_order({file.name: file for file in files}):
            if is_wide:
                _widen([*file.message_type])
            pool.Add(file)
        return pool.FindMessageTypeByName(self.message)

    @cached_property
    def _class(self) -> Any:
        """The message with integers of 64 bits, which are encoded like those of 32 bits."""
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(self._descriptor(is_wide=True))

    @cached_property
    def _columns(self) -> tuple[pa.Schema, Step]:
        return columns_of(self._descriptor(is_wide=False))

    def _decode(self, body: bytes) -> dict[str, Any]:
        made: dict[str, Any] = self._columns[1](self._class.FromString(body))
        return made


def _widen(messages: list[Any]) -> None:
    """Give integers of messages 64 bits: the library cuts off the upper bits of larger ones."""
    for message in messages:
        for field in (*message.field, *message.extension):
            field.type = _WIDE.get(field.type, field.type)
        _widen([*message.nested_type])


_WIDE: Final = {5: 3, 13: 4, 17: 18}
"""The types with 64 bits in place of int32, uint32 and sint32, by FieldDescriptorProto.TYPE_..."""


def _in_order(files: dict[str, Any]) -> list[Any]:
    """Each file after its imports; raises :class:`ValueError` if one is missing."""
    ordered: dict[str, Any] = {}

    def add(name: str, importer: str) -> None:
        if name in ordered:
            return
        if name not in files:
            raise ValueError(f"{importer} imports {name}: give protoc --include_imports")
        file = files.pop(name)
        for needed in file.dependency:
            add(needed, name)
        ordered[name] = file

    for name in tuple(files):
        add(name, "")
    return list(ordered.values())


_SERIALIZED: Final = "serialized"
"""Requests a file descriptor instead of source text."""
_MORE: Final = 0x80
_MOST_BITS: Final = 35
_FIRST: Final = (0,)


@attrs.frozen(slots=False)
class RegistryProtobuf(Protobuf):
    """A parser of Protocol Buffers bodies with Confluent's header."""

    registry: schema_registry.SchemaRegistry

    @classmethod
    def at(cls, place: str) -> RegistryProtobuf:
        """The parser for ``URL#SUBJECT[@VERSION][#pkg.Message]``; by default its first message.

        Raises :class:`~lakelog.errors.SettingsError` and
        :class:`~lakelog_lake.errors.RegistryUnreachable`.
        """
        registry, name, message = schema_registry.split(place, "protobuf-registry", _SERIALIZED)
        schema = registry.named(name)
        with _supported("supported Protobuf schema", message, name):
            message = message or _framed_message(schema, _FIRST)
            made = cls(_descriptors(schema), message, registry)
            made.fields  # noqa: B018  # raises early if it cannot be made
        return made

    @cached_property
    def _names(self) -> dict[tuple[int, tuple[int, ...]], str]:
        """Full names of messages, by schema id and index path."""
        return {}

    def _decode(self, body: bytes) -> dict[str, Any]:
        number = schema_registry.header_of(body)
        places, start = _places(body, schema_registry.HEADER_BYTES)
        key = (number, places)
        if key not in self._names:
            self._names[key] = _framed_message(self.registry.by_id(number), places)
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


def _file(schema: schema_registry.Schema, name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if schema.kind != "PROTOBUF":
        raise ValueError(f"the registry's schema is {schema.kind.title()}, not Protobuf")
    file = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    file.name = name
    return file


def _framed_message(schema: schema_registry.Schema, places: tuple[int, ...]) -> str:
    """The full name of the message at an index path; raises :class:`ValueError`."""
    file = _file(schema, "main")
    name, inside = file.package, file.message_type
    for place in places:
        if not 0 <= place < len(inside):
            raise ValueError(f"its schema has no message at index path {list(places)}")
        name = f"{name}.{inside[place].name}" if name else inside[place].name
        inside = inside[place].nested_type
    return str(name)


def _descriptors(schema: schema_registry.Schema) -> bytes:
    """A descriptor set of a schema, its references, and their imports from Google's library."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    files: dict[str, Any] = {}

    def add(name: str, each: schema_registry.Schema) -> None:
        files[name] = _file(each, name)
        for other, inner in each.references:
            if other not in files:
                add(other, inner)

    add("lakelog-main.proto", schema)
    waiting = [name for file in files.values() for name in file.dependency]
    while waiting:
        name = waiting.pop()
        if name in files or not name.startswith("google/protobuf/"):
            continue
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        files[name] = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(files[name])
        waiting += files[name].dependency
    return bytes(FileDescriptorSet(file=files.values()).SerializeToString())
