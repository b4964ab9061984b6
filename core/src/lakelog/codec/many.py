"""Many messages as many records in one buffer: the vectorised path of a batch put."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
from lakelog.codec.ranks import QueueRanks
from lakelog.codec.seals import seal_all
from lakelog.errors import IllegalMessage
from lakelog.layout import BLANK_MIN_BYTES
from lakelog.message import Message
from lakelog.results import BatchResult
from lakelog.status import AppendStatus, PutStatus
from lakelog.sysflag import PREPARED

if TYPE_CHECKING:
    from lakelog.codec.encoder import Encoder
    from lakelog.codec.hostpair import HostPair
    from lakelog.queueoffsets import Queue, QueueOffsets

Ints = NDArray[np.int64]


class EncodedMany(EncodedBatch):
    """Records back to back; their heads are an array until they are placed."""

    __slots__ = (
        "_heads",
        "_hosts",
        "_queues",
        "_ranks",
        "_sealed",
        "_starts",
        "store_timestamp_ms",
    )

    def __init__(
        self,
        buffer: bytearray,
        heads: NDArray[Any],
        starts: Ints,
        ranks: QueueRanks,
        queues: Sequence[Queue],
        hosts: Sequence[HostPair],
        wait: bool,
        sealed: bool,
    ) -> None:
        self.buffer = buffer
        self.count = len(heads)
        self.wait = wait
        self._heads = heads
        self._starts = starts
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
        heads["queue_offset"] = self._ranks.offsets(queue_offsets)
        heads["physical_offset"] = starts + position
        heads["store_timestamp"] = now_ms
        scatter(self.buffer, heads.dtype, starts, heads)
        if self._sealed:
            seal_all(self.buffer, starts, starts + heads["size"])
        self.store_timestamp_ms = now_ms
        return AppendStatus.PUT_OK

    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Take as many offsets of each queue as it has records here."""
        for queue, count in zip(self._ranks.queues, self._ranks.counts, strict=True):
            queue_offsets.advance(queue, count)

    def results(self, status: PutStatus) -> BatchResult:
        """The results as columns."""
        heads = self._heads
        return BatchResult(
            status,
            self._queues,
            heads["queue_offset"].astype(np.int64),
            heads["physical_offset"].astype(np.int64),
            heads["size"].astype(np.int64),
            self.store_timestamp_ms,
            [hosts.store_host for hosts in self._hosts] * (self.count // len(self._hosts)),
        )


def encode_columns(messages: Sequence[Message], encoder: Encoder) -> EncodedMany | None:
    """Encode ``messages`` column by column; ``None`` where they are too unlike each other.

    Unlike are hosts of both families, light queues, and anything illegal: the scalar path then
    says which message it is.
    """
    try:
        return _encoded(messages, encoder)
    except (UnlikeError, IllegalMessage, AttributeError, TypeError, ValueError, OverflowError):
        return None


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
    return EncodedMany(buffer, heads, ends - sizes, ranks, queues, hosts, wait, encoder.record_crc)
