"""What a log holds, found by reading it: its end, its last store time, the next queue offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from lakelog.pieces import Blank, Damage, Piece
from lakelog.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    MULTI_DISPATCH_SEPARATOR,
    decode_properties,
    light_queues,
)
from lakelog.queueoffsets import Queue
from lakelog.sysflag import INNER_BATCH, PREPARED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.codec.recordbatch import RecordBatch

INNER_NUMBER = "INNER_NUM"
"""How many messages an inner batch holds, each of which takes a queue offset."""
_DISPATCHED = INNER_MULTI_DISPATCH.encode()


@attrs.define
class Survey:
    """What a scan found.

    :ivar start_offset: where it began
    :ivar end_offset: behind the last whole record or blank
    :ivar last_timestamp_ms: store time of the last record
    :ivar next_offsets: the offset that the next message of each queue takes
    :ivar damage: what is no whole record
    :ivar records: how many whole ones there are
    """

    start_offset: int
    end_offset: int
    last_timestamp_ms: int = 0
    next_offsets: dict[Queue, int] = attrs.Factory(dict)
    damage: list[Damage] = attrs.Factory(list)
    records: int = 0

    def raise_offset(self, queue: Queue, next_offset: int) -> None:
        """The next offset of ``queue`` is at least this."""
        if self.next_offsets.get(queue, 0) < next_offset:
            self.next_offsets[queue] = next_offset


def survey(pieces: Iterable[Piece], start: int, queue_ends: Mapping[Queue, int]) -> Survey:
    """Add up a scan that began at ``start``.

    :param queue_ends: where consume queues end; they may remember more than the log still holds
    """
    found = Survey(start, start, next_offsets=dict(queue_ends))
    for piece in pieces:
        if isinstance(piece, Blank):
            found.end_offset = piece.offset + piece.size
        elif isinstance(piece, Damage):
            found.damage.append(piece)
        else:
            _count(found, piece)
    return found


def _count(found: Survey, batch: RecordBatch) -> None:
    found.end_offset = batch.end_offset
    found.last_timestamp_ms = int(batch.store_timestamps_ms[-1])
    found.records += len(batch)
    flags = batch.sys_flags
    columns = (batch.topics, batch.queue_ids.tolist(), batch.queue_offsets.tolist())
    queued = ((flags & PREPARED) == 0).tolist()
    for topic, queue_id, queue_offset, takes in zip(*columns, queued, strict=True):
        if takes:
            found.raise_offset((topic, queue_id), queue_offset + 1)
    _count_inner_batches(found, batch, flags)
    _count_light_queues(found, batch)


def _count_inner_batches(found: Survey, batch: RecordBatch, flags: NDArray[Any]) -> None:
    for at in (flags & INNER_BATCH).nonzero()[0].tolist():
        number = batch.properties[at].get(INNER_NUMBER, "1")
        taken = int(number) if number.isdigit() else 1
        queue = (batch.topics[at], int(batch.queue_ids[at]))
        found.raise_offset(queue, int(batch.queue_offsets[at]) + taken)


def _count_light_queues(found: Survey, batch: RecordBatch) -> None:
    for raw in batch.property_strings:
        if _DISPATCHED in raw:
            properties = decode_properties(raw)
            topics = light_queues(properties.get(INNER_MULTI_DISPATCH, ""))
            offsets = properties.get(INNER_MULTI_QUEUE_OFFSET, "").split(MULTI_DISPATCH_SEPARATOR)
            for topic, offset in zip(topics, offsets, strict=False):
                if offset.isdigit():
                    found.raise_offset((topic, 0), int(offset) + 1)
