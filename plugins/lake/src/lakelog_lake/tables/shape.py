"""The form of a table: its columns, their order and field ids in data files, and its partitions.

The partition keys are topic, day or hour of store time, and store. A table with hidden partitions
(Iceberg) derives days and hours from ``store_timestamp``. Others get a column: ``day`` as a date,
``hour`` as text such as ``2026-11-21-10``, in UTC.

A schema may evolve by new fields inside of structs, lists and maps, and wider numbers. A table with
a newer schema still takes rows of the older one, so dispatchers with the old and the new schema can
run together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.types as t
from numpy.typing import NDArray

from lakelog.arrow import schema
from lakelog.errors import SettingsError
from lakelog_lake.log.records import ERROR
from lakelog_lake.tables.settings import FileSettings

TOPIC: Final = "topic"
DAY: Final = "day"
HOUR: Final = "hour"
STORE: Final = "store"
KEYS: Final = (TOPIC, DAY, HOUR, STORE)
TIMES: Final = {DAY: 86_400_000, HOUR: 3_600_000}
"""Length of each time partition, in ms."""
DEFAULT: Final = (TOPIC, DAY)
_NONE: Final = "none"
_EPOCH: Final = date(1970, 1, 1).toordinal()


def parse(text: str) -> tuple[str, ...]:
    """Parse ``--partition``.

    >>> parse("topic, hour"), parse("none")
    (('topic', 'hour'), ())

    Raises :class:`~lakelog.errors.SettingsError`.
    """
    keys = tuple(each.strip() for each in text.split(","))
    if keys == (_NONE,):
        return ()
    if set(keys) - set(KEYS) or len(set(keys)) < len(keys):
        known = ", ".join(KEYS)
        raise SettingsError(
            f"{text!r} is not {_NONE}, nor some of {known}, each once", key="--partition"
        )
    return keys


def keys_text(keys: Sequence[str]) -> str:
    """The reverse of :func:`parse`."""
    return ",".join(keys) or _NONE


def as_text(key: str, value: int | str) -> str:
    """Format a value for a partition column.

    Days are in ISO 8601; those outside the calendar become its first or last day.

    >>> as_text("topic", "orders"), as_text("day", 20_000), as_text("hour", 480_005)
    ('orders', '2024-10-04', '2024-10-04-05')
    >>> as_text("day", 0), as_text("day", 10**8)
    ('1970-01-01', '9999-12-31')
    """
    if key not in TIMES:
        return str(value)
    day, hour = divmod(int(value), 24) if key == HOUR else (int(value), None)
    text = date.fromordinal(min(max(_EPOCH + day, 1), date.max.toordinal())).isoformat()
    return text if hour is None else f"{text}-{hour:02d}"


BODY: Final = "body"
REPEATING: Final = (
    *("store", "topic", "queue_id", "flag", "sys_flag", "tags", "transaction_type"),
    *("born_host", "store_host", "reconsume_times", "properties.key_value.key", DAY, HOUR),
)
"""Columns with dictionary encoding; never the body."""


def message_columns() -> pa.Schema:
    """The columns of a message with its raw body."""
    return pa.schema([pa.field("store", pa.string()), *schema()])


def dead_letter_columns() -> pa.Schema:
    """The columns of a dead letter: those of a message, and the error of its body."""
    return message_columns().append(pa.field(ERROR, pa.string()))


def parsed_columns(parsers: Iterable[pa.Schema], *, keep_body: bool) -> pa.Schema:
    """The columns of messages with parsed bodies.

    :param parsers: the fields of each parser, which replace ``body``
    :param keep_body: whether to keep ``body`` as well, for messages without a parser

    Raises :class:`~lakelog.errors.SettingsError` for duplicate names.
    """
    columns = message_columns()
    at = columns.get_field_index(BODY)
    taken = {name: columns.field(name) for name in columns.names if keep_body or name != BODY}
    added: dict[str, Any] = {}
    for field in (each for fields in parsers for each in fields):
        if taken.get(field.name, field).type != field.type or _is_ours(field.name):
            raise SettingsError(
                f"column {field.name!r} of a body, {field.type}, has the name of another column; "
                "rename it in the schema",
                key="--body",
            )
        taken[field.name] = added[field.name] = pa.field(field.name, field.type)
    kept = [columns.field(at)] if keep_body and BODY not in added else []
    before, behind = list(columns)[:at], list(columns)[at + 1 :]
    return pa.schema([*before, *kept, *added.values(), *behind])


def _is_ours(name: str) -> bool:
    return name in (DAY, HOUR, ERROR) or (name != BODY and name in message_columns().names)


@attrs.frozen
class TableShape:
    """The expected form of a table.

    :ivar columns: all of them, except those that exist only as partitions
    :ivar partition: some of :data:`lakelog_lake.tables.shape.KEYS`
    :ivar topic: the only topic of the table, where each topic has its own
    """

    columns: pa.Schema = attrs.field(factory=message_columns)
    partition: tuple[str, ...] = DEFAULT
    topic: str | None = None

    def stored(self) -> pa.Schema:
        """The columns, and the partition columns of a table without hidden partitions."""
        kinds = {DAY: pa.date32(), HOUR: pa.string()}
        own = [pa.field(key, kinds[key]) for key in self.partition if key in kinds]
        return pa.schema([*self.columns, *own])


@attrs.frozen
class Layout:
    """The content of a data file.

    :ivar columns: the columns, in their order
    :ivar partition: the partition keys; all rows of a file have the same values
    :ivar field_ids: Iceberg's field id of each column by its name in the table, nested columns as
        ``keys.element``, ``properties.key``, ``properties.value``, ``order.price``; ``None``
        without field ids
    :ivar required: the columns of the table that must not be null, or have a part that must not,
        see :func:`demanding`
    :ivar files: what the table says of its files
    :ivar is_hidden: whether a file has a hidden name until it is committed
    :ivar has_folders: whether files are in folders named by their partition
    :ivar form: identifies the columns and partitions of the table for which it was made; a commit
        to a version of another form would misplace the rows
    """

    columns: pa.Schema = attrs.field(factory=message_columns)
    partition: tuple[str, ...] = DEFAULT
    field_ids: Mapping[str, int] | None = None
    required: pa.Schema = attrs.field(factory=lambda: pa.schema([]))
    files: FileSettings = attrs.field(factory=FileSettings)
    is_hidden: bool = False
    has_folders: bool = False
    form: Hashable = None


def file_schema(layout: Layout) -> pa.Schema:
    """The schema of a data file."""
    ids = layout.field_ids

    def field(name: str, kind: Any, at: str, *, null: bool = True) -> Any:
        number = None if ids is None else {b"PARQUET:field_id": str(ids[at]).encode()}
        return pa.field(name, nested(kind, at), null, number)

    def nested(kind: Any, at: str) -> Any:
        if pa.types.is_map(kind):
            key = field("key", kind.key_type, f"{at}.key", null=False)
            return pa.map_(key, field("value", kind.item_type, f"{at}.value"))
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return pa.list_(field("element", kind.value_type, f"{at}.element"))
        if pa.types.is_struct(kind):
            return pa.struct([field(each.name, each.type, f"{at}.{each.name}") for each in kind])
        return kind

    return pa.schema([field(each.name, each.type, each.name) for each in layout.columns])


_Rows: TypeAlias = "NDArray[np.bool_]"


def demanding(columns: Iterable[pa.Field], ours: Sequence[str]) -> pa.Schema:
    """The columns of a table, of those named ``ours``, that must not be null in some part."""
    return pa.schema([each for each in columns if each.name in ours and _demands(each)])


def _demands(field: pa.Field) -> bool:
    return not field.nullable or any(map(_demands, _parts(field.type)))


def _parts(kind: Any) -> list[pa.Field]:
    """The fields inside of a type; the keys of a map are never null."""
    if t.is_struct(kind):
        return list(kind)
    if t.is_map(kind):
        return [kind.item_field]
    return [kind.value_field] if _is_list(kind) else []


def refused(batch: pa.RecordBatch, layout: Layout) -> Iterator[tuple[str, _Rows]]:
    """The columns that are null though the table forbids it, each with the rows of ``batch``."""
    for field in layout.required:
        if field.name in batch.schema.names:
            yield from _nulls(batch.column(field.name), field, field.name)
        elif field.name not in (STORE, DAY, HOUR):  # those have one value per file
            yield from _nulls(pa.nulls(batch.num_rows, field.type), field, field.name)


def _nulls(values: Any, field: pa.Field, at: str) -> Iterator[tuple[str, _Rows]]:
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    if not field.nullable and is_null.any():
        yield at, is_null
    for part in filter(_demands, _parts(field.type)):
        if t.is_struct(field.type):
            place = values.type.get_field_index(part.name)
            inner = values.field(place) if place >= 0 else pa.nulls(len(values), part.type)
            owners = np.arange(len(values))
        else:
            ends = values.offsets.to_numpy()
            inner = values.items if t.is_map(field.type) else values.values
            inner = inner.slice(ends[0], ends[-1] - ends[0])
            owners = np.repeat(np.arange(len(values)), np.diff(ends))
        for name, wrong in _nulls(inner, part, f"{at}.{part.name}"):
            rows = np.zeros(len(values), np.bool_)
            rows[owners[wrong]] = True
            if (rows & ~is_null).any():
                yield name, rows & ~is_null


def fits(found: pa.DataType, ours: pa.DataType, *, widens: bool) -> bool:
    """Whether a column of type ``found`` accepts ``ours``, or can be changed so that it does.

    :param widens: whether int may become bigint, float double, and a decimal one of more digits
    """
    if t.is_struct(found) and t.is_struct(ours):
        both = {each.name for each in found} & {each.name for each in ours}
        return all(
            fits(found.field(name).type, ours.field(name).type, widens=widens) for name in both
        )
    if _is_list(found) and _is_list(ours):
        return fits(found.value_type, ours.value_type, widens=widens)
    if t.is_map(found) and t.is_map(ours):
        keys = fits(found.key_type, ours.key_type, widens=False)
        return keys and fits(found.item_type, ours.item_type, widens=widens)
    return _plain(found) == _plain(ours) or (
        widens and (_is_wider(found, ours) or _is_wider(ours, found))
    )


def adds(found: pa.DataType, ours: pa.DataType) -> bool:
    """Whether ``ours``, which fits, has a field that ``found`` lacks."""
    if t.is_struct(ours):
        names = {each.name for each in found}
        return any(
            each.name not in names or adds(found.field(each.name).type, each.type) for each in ours
        )
    if _is_list(ours):
        return adds(found.value_type, ours.value_type)
    return bool(t.is_map(ours)) and adds(found.item_type, ours.item_type)


def _is_list(kind: pa.DataType) -> bool:

    return bool(t.is_list(kind) or t.is_large_list(kind))


def _plain(kind: Any) -> str:
    """The name of a type, without Arrow's variants for large values."""
    return str(kind).removeprefix("large_")


def _is_wider(one: pa.DataType, other: pa.DataType) -> bool:

    if t.is_decimal(one) and t.is_decimal(other):
        return bool(one.scale == other.scale and one.precision > other.precision)
    return (_plain(other), _plain(one)) in (("int32", "int64"), ("float", "double"))
