"""Converts records to an Arrow record batch; columns that are not requested cost nothing.

Conversion is vectorised, except for decompression of bodies, and for hosts: each distinct host is
formatted once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lakelog.codec import RecordBatch
from lakelog.format.properties import KEYS, TAGS, UNIQUE_KEY
from lakelog.format.sysflag import TRANSACTION_MASK, Transaction
from lakelog.runtime.cached import cached_property
from lakelog_queues.arrow.bodies import bodies, sys_flags
from lakelog_queues.arrow.hosts import born_hosts, message_ids, store_hosts
from lakelog_queues.arrow.propertycolumns import PropertyColumns
from lakelog_queues.arrow.schema import schema
from lakelog_queues.arrow.slices import Longs, as_text, slices

_LAST_MS: Final = ((1 << 63) - 1) // 1000
_TRANSACTIONS: Final = tuple(Transaction(each << 2).name for each in range(4))


def to_arrow(
    batch: RecordBatch, columns: Iterable[str] | None = None, decompress: bool = False
) -> pa.RecordBatch:
    """Convert the records of ``batch`` to rows, in order; the result does not refer to its buffer.

    Every column holds the record's own values. A message found through a light queue has the topic
    and queue offset of its own queue. Invalid UTF-8 is replaced.

    ``transaction_type`` is a name of ``Transaction``. If the property is missing, ``keys`` is
    empty, and ``tags`` and ``unique_key`` are null. Times outside the range of microseconds are
    clipped. ``body`` and ``sys_flag`` come from the batch's decoder, if it has one.

    :param batch: checked records, at any positions of its buffer and in any order
    :param columns: names of :data:`~lakelog.arrow.COLUMNS`, in the desired order; ``None`` is all
    :param decompress: whether compressed bodies are unpacked; ``sys_flag`` stays as stored

    Raises ``ValueError`` for an unknown column, :class:`~lakelog.errors.CorruptRecord` for a body
    that cannot be unpacked, and :class:`~lakelog.errors.DecodeFailed` for one whose original cannot
    be restored.
    """
    wanted = schema(columns)
    rows = _Rows(batch, decompress)
    arrays = [_COLUMNS[each.name](rows) for each in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


class _Rows:
    """A batch of records, with intermediate results that several columns share."""

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
    # As it is: a conversion by Arrow takes as long as all other columns of numbers.
    return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), len(us), [None, pa.py_buffer(us)])


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
