"""A run of records to an Arrow record batch; a column that is not asked for costs nothing.

No step goes record by record, but for bodies to be unpacked, and hosts, each different one of
which is written out once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lakelog.arrow.bodies import bodies, sys_flags
from lakelog.arrow.hosts import born_hosts, message_ids, store_hosts
from lakelog.arrow.propertycolumns import PropertyColumns
from lakelog.arrow.schema import schema
from lakelog.arrow.slices import Longs, as_text, slices
from lakelog.codec import RecordBatch
from lakelog.format.properties import KEYS, TAGS, UNIQUE_KEY
from lakelog.format.sysflag import TRANSACTION_MASK, Transaction
from lakelog.runtime.cached import cached_property

_LAST_MS: Final = ((1 << 63) - 1) // 1000
_TRANSACTIONS: Final = tuple(Transaction(each << 2).name for each in range(4))


def to_arrow(
    batch: RecordBatch, columns: Iterable[str] | None = None, decompress: bool = False
) -> pa.RecordBatch:
    """The records of ``batch`` as rows, in their order; nothing refers to its buffer afterwards.

    Every column says what the record says: the topic and queue offset of a message that was
    found in a light queue are those of its own queue. Broken UTF-8 is replaced.
    ``transaction_type`` is a name of ``Transaction``. ``keys`` is empty,
    ``tags`` and ``unique_key`` are null where the property is missing. Times beyond what
    microseconds can say become the last or first one.

    :param batch: records that were checked, at any places of its buffer and in any order
    :param columns: names of :data:`~lakelog.arrow.COLUMNS`, in the order wanted; all of them
        without it
    :param decompress: whether compressed bodies are unpacked; ``sys_flag`` stays as stored

    ``body`` and ``sys_flag`` are those that the batch's decoder gives, if it has one.

    Raises ``ValueError`` for a column that does not exist,
    :class:`~lakelog.errors.CorruptRecord` for a body that cannot be unpacked, and
    :class:`~lakelog.errors.DecodeFailed` for one that cannot be had as it was put.
    """
    wanted = schema(columns)
    rows = _Rows(batch, decompress)
    arrays = [_COLUMNS[each.name](rows) for each in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


class _Rows:
    """A batch, and what several columns share."""

    def __init__(self, batch: RecordBatch, decompress: bool) -> None:
        self.batch = batch
        self.decompress = decompress

    @cached_property
    def properties(self) -> PropertyColumns:
        return PropertyColumns(self.batch)


def _topics(rows: _Rows) -> pa.StringArray:
    batch = rows.batch
    return as_text(slices(batch.buffer, batch.topic_positions, batch.topic_lengths))


def _times(times_ms: Longs) -> pa.Array:
    us = np.clip(times_ms, -_LAST_MS, _LAST_MS) * 1000
    return pa.array(us.view("datetime64[us]")).cast(pa.timestamp("us", tz="UTC"))


def _transactions(rows: _Rows) -> pa.StringArray:
    codes = (rows.batch.sys_flags & TRANSACTION_MASK) >> 2
    return pa.array(_TRANSACTIONS).take(pa.array(codes))


def _numbers(name: str) -> Callable[[_Rows], pa.Array]:
    return lambda rows: pa.array(getattr(rows.batch, name))


_COLUMNS: Final[dict[str, Callable[[_Rows], Any]]] = {
    "topic": _topics,
    "queue_id": _numbers("queue_ids"),
    "queue_offset": _numbers("queue_offsets"),
    "physical_offset": _numbers("physical_offsets"),
    "store_size": _numbers("sizes"),
    "message_id": lambda rows: message_ids(rows.batch),
    "unique_key": lambda rows: rows.properties.texts(UNIQUE_KEY),
    "tags": lambda rows: rows.properties.texts(TAGS),
    "keys": lambda rows: rows.properties.words(KEYS),
    "properties": lambda rows: rows.properties.maps(),
    "body": lambda rows: bodies(rows.batch, rows.decompress),
    "body_crc": lambda rows: pa.array(rows.batch.body_crcs.view(np.int32)),
    "flag": _numbers("flags"),
    "sys_flag": lambda rows: pa.array(sys_flags(rows.batch)),
    "transaction_type": _transactions,
    "born_timestamp": lambda rows: _times(rows.batch.born_timestamps_ms),
    "born_host": lambda rows: born_hosts(rows.batch),
    "store_timestamp": lambda rows: _times(rows.batch.store_timestamps_ms),
    "store_host": lambda rows: store_hosts(rows.batch),
    "reconsume_times": _numbers("reconsume_times"),
    "prepared_transaction_offset": _numbers("prepared_transaction_offsets"),
}
