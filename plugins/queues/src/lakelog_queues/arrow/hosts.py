"""Hosts and message ids as columns."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lakelog.codec import RecordBatch
from lakelog.format.hosts import decode_host
from lakelog.format.layout import AT_BORN_HOST, AT_PHYSICAL_OFFSET, HOST_V4_BYTES, HOST_V6_BYTES
from lakelog.format.sysflag import BORN_HOST_V6, STORE_HOST_V6
from lakelog_format.codec.record_batch import LONG_BYTES, SUFFIX_BYTES, anywhere
from lakelog_queues.arrow.slices import Longs, of_few, slices

_DIGITS: Final = np.frombuffer("".join(f"{each:02X}" for each in range(256)).encode(), np.uint16)
"""The two hexadecimal digits of each byte."""


def born_hosts(batch: RecordBatch) -> pa.StringArray:
    """``address:port`` of the sender of each record; IPv6 addresses are in brackets."""
    return _hosts(batch, batch.starts + AT_BORN_HOST, _lengths(batch, BORN_HOST_V6))


def store_hosts(batch: RecordBatch) -> pa.StringArray:
    """``address:port`` of the store host of each record."""
    return _hosts(batch, *_store_hosts(batch))


def _lengths(batch: RecordBatch, v6: int) -> Longs:
    return np.where(batch.sys_flags & v6, HOST_V6_BYTES, HOST_V4_BYTES).astype(np.int64)


def _store_hosts(batch: RecordBatch) -> tuple[Longs, Longs]:
    lengths = _lengths(batch, STORE_HOST_V6)
    return batch.body_positions - SUFFIX_BYTES - lengths, lengths


def _hosts(batch: RecordBatch, positions: Longs, lengths: Longs) -> pa.StringArray:
    return of_few(slices(batch.buffer, positions, lengths), decode_host)


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
    octets[:, :length] = _bytes_at(batch, hosts, length)
    octets[:, length:] = _bytes_at(batch, starts + AT_PHYSICAL_OFFSET, LONG_BYTES)
    digits = _DIGITS[octets]
    width = 2 * octets.shape[1]
    offsets = np.arange(0, len(hosts) * width + 1, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(hosts), pa.py_buffer(offsets), pa.py_buffer(digits))


def _bytes_at(batch: RecordBatch, positions: Longs, length: int) -> NDArray[np.uint8]:
    found = anywhere(batch.buffer, np.dtype((np.void, length)))[positions]
    return found.view(np.uint8).reshape(-1, length)
