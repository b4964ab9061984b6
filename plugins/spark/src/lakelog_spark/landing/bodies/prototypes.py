"""Protocol Buffers' types as Arrow's.

A field with presence (``optional``, of a ``oneof``, a message) is null where it is not set; others
have their default. Enums are text, of a number without a name its digits; ``uint32`` is 64 bits
wide, ``uint64`` a decimal of 20 digits; ``google.protobuf.Timestamp`` is a timestamp in UTC to the
microsecond, and the wrappers (``StringValue`` ...) are their values. A message without fields is
true where it is set. Messages that hold themselves (``google.protobuf.Struct``) are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from lakelog_spark.landing.bodies.naming import column_names, field_names

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

Step: TypeAlias = Callable[[Any], Any]
"""A value, as the library gives it, in the form of its Arrow type."""

_PACKAGE: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_PACKAGE}{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_MICROS: Final = 1_000_000


def columns_of(message: Descriptor) -> tuple[pa.Schema, Step]:
    """The columns of a message; raises :class:`ValueError`, which says where in it."""
    if not message.fields:
        raise ValueError(f"{message.full_name} has no fields")
    kind, step = _struct(message, "", ())
    return pa.schema(list(kind)), step


def _struct(message: Descriptor, at: str, inside: tuple[str, ...]) -> tuple[pa.DataType, Step]:
    if message.full_name in inside:
        raise ValueError(f"{at}: {message.full_name} holds itself, which no column can")
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
