"""Protocol Buffers bodies as typed columns: each body is one message without a length prefix.

The schema is a descriptor set (``protoc --include_imports --descriptor_set_out=FILE``) and the name
of a message. Unknown fields are skipped, as usual for this format, so arbitrary bytes often parse
as some message.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import pyarrow as pa

from lakelog_lake.bodies.names import column_names, field_names, needs, refused
from lakelog_lake.bodies.rowwise import Rowwise

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

Step: TypeAlias = Callable[[Any], Any]
"""Converts a value of the library to its Arrow type."""

_PACKAGE: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_PACKAGE}{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_MICROS: Final = 1_000_000


def columns_of(message: Descriptor) -> tuple[pa.Schema, Step]:
    """The columns of a message; raises :class:`ValueError` with the place in it."""
    if not message.fields:
        raise ValueError(f"{message.full_name} has no fields")
    kind, step = _struct(message, "", ())
    return pa.schema(list(kind)), step


def _struct(message: Descriptor, at: str, inside: tuple[str, ...]) -> tuple[pa.DataType, Step]:
    if message.full_name in inside:
        raise ValueError(f"{at}: {message.full_name} contains itself: no column can")
    inside = (*inside, message.full_name)
    keys = [field.name for field in message.fields]
    names = (field_names if at else column_names)(keys)
    made = [_field(field, f"{at}/{field.name}", inside) for field in message.fields]
    kind = pa.struct([(name, type_) for name, (type_, _) in zip(names, made, strict=True)])
    steps = [
        (name, field.name, field.has_presence, step)
        for name, field, (_, step) in zip(names, message.fields, made, strict=True)
    ]

    def values(of: Any) -> dict[str, Any]:
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
    return _SCALARS[field.cpp_type] if field.type != field.TYPE_BYTES else pa.binary(), _as_it_is


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
    return int(time.seconds * _MICROS + time.nanos // 1000)


def _as_it_is(value: Any) -> Any:
    return value


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
        try:
            from google.protobuf.message import DecodeError
        except ImportError as error:
            raise needs("protobuf", "protobuf") from error
        made = cls(descriptors, message)
        try:
            made.fields  # noqa: B018  # raises early if it cannot be made
        except KeyError as error:
            raise refused(f"there is no message {message}", source) from error
        except (DecodeError, TypeError, ValueError) as error:
            raise refused(f"not a readable descriptor set: {error}", source) from error
        return made

    @cached_property
    def _descriptor(self) -> Descriptor:
        from google.protobuf import descriptor_pb2, descriptor_pool

        pool = descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet.FromString(self.descriptors).file
        for file in _in_order({file.name: file for file in files}):
            pool.Add(file)
        return pool.FindMessageTypeByName(self.message)

    @cached_property
    def _class(self) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(self._descriptor)

    @cached_property
    def _columns(self) -> tuple[pa.Schema, Step]:
        return columns_of(self._descriptor)

    def _decode(self, body: bytes) -> dict[str, Any]:
        made: dict[str, Any] = self._columns[1](self._class.FromString(body))
        return made


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
