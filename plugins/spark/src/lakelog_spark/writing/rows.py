"""Rows as messages: their columns are checked at planning, their values completely in tasks.

So the append cannot refuse them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakelog import builtin, errors
from lakelog.format import encoder, layout
from lakelog.format.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQUE_KEY, join_keys
from lakelog.message import Message
from lakelog_spark.writing import staging

if TYPE_CHECKING:
    from lakelog.hooks.kinds import StoreSettings

_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_TEXT: Final = ("string",)
ACCEPTED: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": _TEXT,
    "body": ("binary", "string"),
    "queue_id": _WHOLE,
    "tags": _TEXT,
    "keys": ("array<string>", "string"),
    "properties": ("map<string,string>",),
    "unique_key": _TEXT,
    "born_timestamp": ("timestamp", "timestamp_ntz", "bigint"),
    "born_host": _TEXT,
    "flag": _WHOLE,
    "sys_flag": _WHOLE,
    "reconsume_times": _WHOLE,
}
"""The Spark types that each column may have."""
REQUIRED: Final = ("topic", "body")
BY_STORE: Final = (
    "store", "queue_offset", "physical_offset", "store_size", "message_id", "body_crc",
    "transaction_type", "store_timestamp", "store_host", "prepared_transaction_offset",
)  # fmt: skip  # a list of names
"""Columns of a read that only the store can fill, or that follow from other columns."""
_PACKED: Final = layout.COMPRESSED | layout.COMPRESSION_MASK
_BATCH: Final = layout.INNER_BATCH | layout.NEED_UNWRAP
_ROWS: Final = 8192
_BYTES: Final = 4 << 20
_OVERHEAD: Final = 160
"""An upper estimate of the bytes of a record besides topic, properties and body."""


class PartitionRows:
    """The rows of one partition as batches of messages, each to be appended at once."""

    def __init__(self, core: StoreSettings, partition: int, *, decompress: bool) -> None:
        """Prepare for a store with the settings ``core``."""
        self._queues = core.queues_per_topic
        # The size of a batch in the log is a fraction of a segment, so that it fits in one.
        self._batch_bytes = min(_BYTES, core.segment_size_bytes // 4)
        self._partition = partition
        self._cleared = ~_PACKED if decompress else ~0
        self._encoder = builtin.RocketmqAppendCallback.of(core).encoder
        self._turns: dict[str, int] = {}
        self._row = 0

    def batches(self, tables: Iterable[pa.RecordBatch]) -> Iterator[list[Message]]:
        """Yield batches in order; raises :class:`.BadRow`."""
        held: list[Message] = []
        size = 0
        for message in self._messages(tables):
            length = _length(message)
            if held and (size + length > self._batch_bytes or len(held) == _ROWS):
                yield self._checked(held)
                held, size = [], 0
            held.append(message)
            size += length
        if held:
            yield self._checked(held)

    def _checked(self, messages: list[Message]) -> list[Message]:
        """Check the messages by encoding them; raises :class:`.BadRow`."""
        try:
            self._encoder.encode(messages)
        except errors.IllegalMessage:
            self._find_bad(messages)
            raise
        self._row += len(messages)
        return messages

    def _find_bad(self, messages: Sequence[Message]) -> None:
        for at, each in enumerate(messages):
            try:
                self._encoder.encode_one(each)
            except errors.IllegalMessage as error:
                raise staging.BadRow(self._partition, self._row + at, str(error)) from None

    def _messages(self, tables: Iterable[pa.RecordBatch]) -> Iterator[Message]:
        number = 0
        for table in tables:
            for row in _dicts(table):
                try:
                    yield self._message(row)
                except ValueError as error:
                    raise staging.BadRow(self._partition, number, str(error)) from None
                number += 1

    def _message(self, row: Mapping[str, Any]) -> Message:
        topic, body = row["topic"], row["body"]
        if topic is None or body is None:
            raise ValueError(f"{'topic' if topic is None else 'body'} is null")
        queue_id, born_ms = row.get("queue_id"), row.get("born_timestamp")
        return Message(
            topic,
            body,
            properties=_properties(row),
            queue_id=self._queue(topic) if queue_id is None else queue_id,
            flag=_int("flag", row),
            sys_flag=self._sys_flag(_int("sys_flag", row)),
            born_timestamp_ms=time.time_ns() // 1_000_000 if born_ms is None else born_ms,
            born_host=row.get("born_host"),
            reconsume_times=_int("reconsume_times", row),
        )

    def _queue(self, topic: str) -> int:
        """Assign queues round robin; partitions start at different queues."""
        turn = self._turns[topic] = self._turns.get(topic, self._partition - 1) + 1
        return turn % self._queues

    def _sys_flag(self, given: int) -> int:
        if given & layout.PREPARED:
            raise ValueError(
                f"sys_flag {given} is of a prepared or rolled-back message, which only the store "
                "of its transaction can hold; filter by transaction_type IN ('NONE', 'COMMIT')"
            )
        if given & _BATCH:
            raise ValueError(f"sys_flag {given} is of an inner batch, which cannot be written")
        return given & self._cleared


def check(fields: Sequence[tuple[str, str]], *, ignore_position_columns: bool) -> None:
    """Check the columns of rows.

    :param fields: names and Spark's types

    Raises :class:`~lakelog.errors.SettingsError` with all errors of one kind.
    """
    names = [name for name, _ in fields]
    _refuse("a column occurs twice", [name for name, n in Counter(names).items() if n > 1])
    _refuse(
        "unknown columns",
        [_hinted(name) for name in names if name not in ACCEPTED and name not in BY_STORE],
        f"; leave it out, or make it one of {', '.join(ACCEPTED)}",
    )
    _refuse("a column is missing", [name for name in REQUIRED if name not in names])
    if not ignore_position_columns:
        _refuse(
            "these columns are for the store to fill",
            [name for name in names if name in BY_STORE],
            "; to copy what was read from a store, give option ignore_position_columns=true: "
            "messages get new places and store times",
        )
    wrong = [
        f"{name} is {kind} and must be {' or '.join(ACCEPTED[name])}"
        for name, kind in fields
        if name in ACCEPTED and kind not in ACCEPTED[name] and kind != "void"
    ]
    _refuse("a column has the wrong type", wrong)
    void = [name for name, kind in fields if kind == "void" and name in REQUIRED]
    _refuse("a column has no values at all", void)


def _hinted(name: str) -> str:
    close = get_close_matches(name.lower(), ACCEPTED, 1)
    return f"{name} (did you mean {close[0]}?)" if close else name


def _refuse(what: str, found: Sequence[str], hint: str = "") -> None:
    if found:
        raise errors.SettingsError(f"{what}: {', '.join(found)}{hint}", key="columns")


def _int(name: str, row: Mapping[str, Any]) -> int:
    value = row.get(name)
    if value is None:
        return 0
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"{name} {value} does not fit into 32 bits")
    return int(value)


def _length(message: Message) -> int:
    properties: Any = message.properties or b""
    return len(message.body) + len(properties) + 3 * len(message.topic) + _OVERHEAD


def _properties(row: Mapping[str, Any]) -> bytes | None:
    """The property string: the properties of the map in its order, then those of other columns."""
    more, unique = row.get("properties"), row.get("unique_key")
    tags, keys = row.get("tags"), row.get("keys")
    if not more and unique is None:  # the common case, and much cheaper
        several = _joined(keys).split(KEY_SEPARATOR) if keys else None
        return encoder.message_properties(tags, several, None) or None
    named = dict(more or ())
    if tags is not None:
        named[TAGS] = tags
    if keys and _pieces(named.get(KEYS)) != _pieces(_joined(keys)):
        named[KEYS] = _joined(keys)
    if unique is not None:
        named[UNIQUE_KEY] = unique
    if None in named.values():
        raise ValueError(f"property {next(k for k, v in named.items() if v is None)!r} is null")
    return encoder.message_properties(None, None, named) or None


def _joined(keys: str | Sequence[str | None]) -> str:
    if isinstance(keys, str):
        return keys
    for each in keys:
        if not each or " " in each:
            raise ValueError(f"key {each!r} is null, empty or has a space, which separates keys")
    return join_keys(keys)  # type: ignore[arg-type]  # none is null


def _pieces(keys: str | None) -> list[str]:
    return [each for each in (keys or "").split(" ") if each]


def _dicts(table: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = [name for name in table.schema.names if name in ACCEPTED]
    columns = [_plain(name, table.column(name)) for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _plain(name: str, column: pa.Array) -> list[Any]:
    if name == "body" and not pa.types.is_null(column.type):
        column = column.cast(pa.binary())
    if name == "born_timestamp" and pa.types.is_timestamp(column.type):
        micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
        return [None if each is None else each // 1000 for each in micros.to_pylist()]
    found: list[Any] = column.to_pylist()
    return found
