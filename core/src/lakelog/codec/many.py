"""Many messages as many records in one buffer: the vectorised path of a batch put."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lakelog.codec import alike
from lakelog.codec.columns import (
    Topics,
    UnlikeError,
    bodies_of,
    heads_of,
    hosts_of,
    joined_records,
    properties_of,
    queue_ids_of,
)
from lakelog.codec.dtypes import SHORT, scatter
from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.ranks import OneQueueRanks, QueueRanks
from lakelog.codec.seals import seal_all
from lakelog.codec.topicblock import topic_block
from lakelog.errors import IllegalMessage
from lakelog.layout import BLANK_MIN_BYTES
from lakelog.message import Message, MessageColumns
from lakelog.results import BatchResult
from lakelog.status import AppendStatus, PutStatus
from lakelog.sysflag import PREPARED

if TYPE_CHECKING:
    from lakelog.codec.encoder import Encoder
    from lakelog.codec.hostpair import HostPair
    from lakelog.queueoffsets import Queue, QueueOffsets

Ints = NDArray[np.int64]

_NOT_THIS_WAY = (
    UnlikeError, IllegalMessage, AttributeError, TypeError, ValueError, OverflowError, struct.error,
)  # fmt: skip  # a list of names
"""What the scalar path either can do, or says in which message it is."""


class EncodedMany(EncodedBatch):
    """Records back to back; their heads are an array until they are placed."""

    __slots__ = (
        "_heads",
        "_hosts",
        "_queue_offsets",
        "_queues",
        "_ranks",
        "_sealed",
        "_sizes",
        "_starts",
        "position",
        "store_timestamp_ms",
    )

    def __init__(
        self,
        buffer: bytearray,
        heads: NDArray[Any],
        sizes: Ints,
        ranks: QueueRanks | OneQueueRanks,
        queues: Sequence[Queue],
        hosts: Sequence[HostPair],
        wait: bool,
        sealed: bool,
    ) -> None:
        self.buffer = buffer
        self.count = len(heads)
        self.wait = wait
        self._heads = heads
        self._sizes = sizes
        self._starts = np.cumsum(sizes) - sizes
        self._ranks = ranks
        self._queues = queues
        self._hosts = hosts
        self._sealed = sealed

    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Fill in what was missing in all heads, then put them into their places."""
        if len(self.buffer) + BLANK_MIN_BYTES > remaining:
            return AppendStatus.END_OF_FILE
        heads, starts = self._heads, self._starts
        heads["queue_offset"] = self._queue_offsets = self._ranks.offsets(queue_offsets)
        heads["physical_offset"] = starts + position
        heads["store_timestamp"] = now_ms
        scatter(self.buffer, heads.dtype, starts, heads)
        if self._sealed:
            seal_all(self.buffer, starts, starts + self._sizes)
        self.position = position
        self.store_timestamp_ms = now_ms
        return AppendStatus.PUT_OK

    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Take as many offsets of each queue as it has records here."""
        for queue, count in zip(self._ranks.queues, self._ranks.counts, strict=True):
            queue_offsets.advance(queue, count)

    def results(self, status: PutStatus) -> BatchResult:
        """The results as columns."""
        return BatchResult(
            status,
            self._queues,
            self._queue_offsets,
            self._starts + self.position,
            self._sizes,
            self.store_timestamp_ms,
            self._store_hosts(),
        )

    def _store_hosts(self) -> list[str]:
        return [hosts.store_host for hosts in self._hosts] * (self.count // len(self._hosts))


def encode_columns(messages: Sequence[Message], encoder: Encoder) -> EncodedMany | None:
    """Encode ``messages`` column by column; ``None`` where they are too unlike each other.

    Fastest are messages that share what :class:`~lakelog.message.MessageColumns` share. Too unlike
    are hosts of both families, light queues, and anything illegal: the scalar path then
    says which message it is.
    """
    try:
        columns = alike.as_columns(messages)
        return _encoded(messages, encoder) if columns is None else _alike(columns, encoder)
    except _NOT_THIS_WAY:
        return None


def _alike(columns: MessageColumns, encoder: Encoder) -> EncodedMany:
    hosts, topic = encoder.hosts_of(columns), topic_block(columns.topic).data
    bodies, lengths = alike.bodies_of(columns)
    properties = alike.properties_of(columns, encoder)
    property_lengths = np.broadcast_to(properties.lengths(), len(columns))
    heads = alike.heads_of(columns, hosts, bodies, lengths)
    fixed = heads.itemsize + len(topic) + SHORT.itemsize
    heads["size"] = sizes = lengths + (property_lengths + fixed)
    encoder.limits.check(int(lengths.max()), int(property_lengths.max()), int(sizes.max()))
    queued = not columns.sys_flag & PREPARED
    queues, heads["queue_id"], ranks = alike.queues_of(columns, encoder, queued)
    buffer = alike.joined_records(heads.itemsize, topic, bodies, properties)
    scatter(buffer, SHORT, np.cumsum(sizes) - property_lengths - SHORT.itemsize, property_lengths)
    return EncodedMany(
        buffer, heads, sizes, ranks, queues, [hosts], columns.wait_store_ok, encoder.record_crc
    )


def _encoded(messages: Sequence[Message], encoder: Encoder) -> EncodedMany:
    topics, bodies = Topics(messages), bodies_of(messages)
    properties, hosts = properties_of(messages, encoder), hosts_of(messages, encoder)
    heads = heads_of(messages, topics, bodies, hosts)
    lengths, property_lengths = (np.array([*map(len, each)]) for each in (bodies, properties))
    sizes = heads.itemsize + lengths + topics.lengths() + property_lengths
    encoder.limits.check(int(lengths.max()), int(property_lengths.max()), int(sizes.max()))
    heads["size"], heads["body_length"] = sizes, lengths
    heads["queue_id"] = queue_ids = queue_ids_of(messages, encoder)
    buffer = joined_records(heads.itemsize, topics, bodies, properties)
    ends = np.cumsum(sizes)
    scatter(buffer, SHORT, ends - property_lengths - SHORT.itemsize, property_lengths)
    queues = list(zip(topics.names, queue_ids.tolist(), strict=True))
    queued = heads["sys_flag"] & PREPARED == 0
    ranks = QueueRanks(queues, queue_ids + (topics.numbers() << 32), queued)
    wait = any(each.wait_store_ok for each in messages)
    return EncodedMany(buffer, heads, sizes, ranks, queues, hosts, wait, encoder.record_crc)
