"""The columns of the message table, and the conversion of records to them.

Columns that are not requested cost nothing. Conversion is vectorised, except for decompression of
bodies, and for hosts: each distinct host is formatted once. All columns are nullable. Times are
microseconds since 1970 in UTC, because Spark and Iceberg do not support milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lakelog.arguments import WrongValue, wrong_type
from lakelog.arrow.slices import Longs, PropertyColumns, as_text, slices, table_of
from lakelog.errors import CorruptRecord
from lakelog.format import layout
from lakelog.format.compression import decompress
from lakelog.format.layout import HOST_V4_BYTES, HOST_V6_BYTES
from lakelog.format.message_id import decode_host
from lakelog.format.properties import KEYS, TAGS, UNIQUE_KEY
from lakelog.format.record_batch import LONG_BYTES, SUFFIX_BYTES, RecordBatch
from lakelog.lazy import cached_property

_DIGITS: Final = np.frombuffer("".join(f"{each:02X}" for each in range(256)).encode(), np.uint16)
"""The two hexadecimal digits of each byte."""
_LAST_MS: Final = ((1 << 63) - 1) // 1000
_TRANSACTIONS: Final = tuple(layout.Transaction(each << 2).name for each in range(4))
_TIME: Final = pa.timestamp("us", tz="UTC")


def schema(columns: Iterable[str] | None = None) -> pa.Schema:
    """The schema of ``columns`` in the given order, or of all columns.

    Raises ``ValueError`` for an unknown or repeated name, and ``TypeError`` for a single string.
    """
    if isinstance(columns, str):
        raise wrong_type("columns", columns, f"a list such as [{columns!r}]")
    names = COLUMNS if columns is None else tuple(columns)
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown:
        raise WrongValue(f"column {unknown[0]!r} is unknown; there are {', '.join(COLUMNS)}")
    if len(set(names)) < len(names):
        raise WrongValue(f"a column is given twice: {', '.join(names)}")
    return pa.schema([(name, _COLUMNS[name][0]) for name in names])


def empty(columns: Iterable[str] | None = None) -> pa.RecordBatch:
    """A record batch without rows."""
    wanted = schema(columns)
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in wanted], schema=wanted)


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
    arrays = [_COLUMNS[each.name][1](rows) for each in wanted]
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
    return pa.Array.from_buffers(_TIME, len(us), [None, pa.py_buffer(us)])


def _transactions(rows: _Rows) -> pa.StringArray:
    codes = (rows.batch.sys_flags & layout.TRANSACTION_MASK) >> 2
    return pa.array(_TRANSACTIONS).take(pa.array(codes))


def _numbers(name: str) -> Callable[[_Rows], pa.Array]:
    return lambda rows: pa.array(getattr(rows.batch, name))


def bodies(batch: RecordBatch, unpack: bool) -> pa.BinaryArray:
    """The bodies as ``binary``; with ``unpack``, compressed ones are decompressed.

    Raises :class:`~lakelog.errors.CorruptRecord` for a body that cannot be decompressed.
    """
    if batch.decoder is not None:
        stored = pa.array([each.body for each in batch.decoded], pa.binary())
    elif batch.packed_bodies is not None:
        octets, offsets = map(pa.py_buffer, batch.packed_bodies)
        stored = pa.BinaryArray.from_buffers(pa.binary(), len(batch), [None, offsets, octets])
    else:
        stored = slices(batch.buffer, batch.body_positions, batch.body_lengths)
    packed = (sys_flags(batch) & layout.COMPRESSED).astype(np.bool_) if unpack else None
    if packed is None or not packed.any():
        return stored
    unpacked = pa.array(
        [_unpacked(batch, stored[row], row) for row in np.flatnonzero(packed).tolist()],
        pa.binary(),
    )
    return pc.replace_with_mask(stored, pa.array(packed), unpacked)


def sys_flags(batch: RecordBatch) -> NDArray[np.int32]:
    """The system flags, ``int32``; with a decoder, those of the decoded bodies."""
    if batch.decoder is None:
        return batch.sys_flags
    return np.array([each.sys_flag for each in batch.decoded], np.int32)


def _unpacked(batch: RecordBatch, body: pa.BinaryScalar, row: int) -> bytes:
    try:
        return decompress(body.as_py(), int(sys_flags(batch)[row]))
    except ValueError as error:
        raise CorruptRecord(str(error), offset=int(batch.physical_offsets[row])) from error


def born_hosts(batch: RecordBatch) -> pa.StringArray:
    """``address:port`` of the sender of each record; IPv6 addresses are in brackets."""
    return _hosts(batch, batch.starts + layout.AT_BORN_HOST, _lengths(batch, layout.BORN_HOST_V6))


def store_hosts(batch: RecordBatch) -> pa.StringArray:
    """``address:port`` of the store host of each record."""
    return _hosts(batch, *_store_hosts(batch))


def _lengths(batch: RecordBatch, v6: int) -> Longs:
    return np.where(batch.sys_flags & v6, HOST_V6_BYTES, HOST_V4_BYTES).astype(np.int64)


def _store_hosts(batch: RecordBatch) -> tuple[Longs, Longs]:
    lengths = _lengths(batch, layout.STORE_HOST_V6)
    return batch.body_positions - SUFFIX_BYTES - lengths, lengths


def _hosts(batch: RecordBatch, positions: Longs, lengths: Longs) -> pa.StringArray:
    coded = slices(batch.buffer, positions, lengths).dictionary_encode()
    names = pa.array(map(decode_host, coded.dictionary.to_pylist()), pa.string())
    return pc.take(names, coded.indices)


def message_ids(batch: RecordBatch) -> pa.StringArray:
    """The offset message id of each record: store host and physical offset in hexadecimal.

    The bytes are those of the record, big-endian: 32 digits with an IPv4 host, 56 with IPv6.
    Source: RocketMQ's ``MessageDecoder.createMessageId``.
    """
    positions, lengths = _store_hosts(batch)
    ids, rows = [], []
    for length in (HOST_V4_BYTES, HOST_V6_BYTES):
        these = np.flatnonzero(lengths == length)
        if len(these):
            ids.append(_in_hex(batch, positions[these], batch.starts[these], length))
            rows.append(these)
    if len(ids) == 1:
        return ids[0]
    if not ids:
        return pa.array([], pa.string())
    order = np.argsort(np.concatenate(rows))
    return pa.concat_arrays(ids).take(pa.array(order))


def _in_hex(batch: RecordBatch, hosts: Longs, starts: Longs, length: int) -> pa.StringArray:
    octets = np.empty((len(hosts), length + LONG_BYTES), np.uint8)
    octets[:, :length] = table_of(batch.buffer, hosts, length)
    octets[:, length:] = table_of(batch.buffer, starts + layout.AT_PHYSICAL_OFFSET, LONG_BYTES)
    digits = _DIGITS[octets]
    width = 2 * octets.shape[1]
    offsets = np.arange(0, len(hosts) * width + 1, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(hosts), pa.py_buffer(offsets), pa.py_buffer(digits))


_COLUMNS: Final[dict[str, tuple[Any, Callable[[_Rows], pa.Array]]]] = {
    "topic": (pa.string(), _topics),
    "queue_id": (pa.int32(), _numbers("queue_ids")),
    "queue_offset": (pa.int64(), _numbers("queue_offsets")),
    "physical_offset": (pa.int64(), _numbers("physical_offsets")),
    "store_size": (pa.int32(), _numbers("sizes")),
    "message_id": (pa.string(), lambda rows: message_ids(rows.batch)),
    "unique_key": (pa.string(), lambda rows: rows.properties.texts(UNIQUE_KEY)),
    "tags": (pa.string(), lambda rows: rows.properties.texts(TAGS)),
    "keys": (pa.list_(pa.string()), lambda rows: rows.properties.words(KEYS)),
    "properties": (pa.map_(pa.string(), pa.string()), lambda rows: rows.properties.maps()),
    "body": (pa.binary(), lambda rows: bodies(rows.batch, rows.decompress)),
    "body_crc": (pa.int32(), lambda rows: pa.array(rows.batch.body_crcs.view(np.int32))),
    "flag": (pa.int32(), _numbers("flags")),
    "sys_flag": (pa.int32(), lambda rows: pa.array(sys_flags(rows.batch))),
    "transaction_type": (pa.string(), _transactions),
    "born_timestamp": (_TIME, lambda rows: _times(rows.batch.born_timestamps_ms)),
    "born_host": (pa.string(), lambda rows: born_hosts(rows.batch)),
    "store_timestamp": (_TIME, lambda rows: _times(rows.batch.store_timestamps_ms)),
    "store_host": (pa.string(), lambda rows: store_hosts(rows.batch)),
    "reconsume_times": (pa.int32(), _numbers("reconsume_times")),
    "prepared_transaction_offset": (pa.int64(), _numbers("prepared_transaction_offsets")),
}
"""The type of each column, and the function that builds it."""
COLUMNS: Final = tuple(_COLUMNS)
"""All column names, in table order."""
