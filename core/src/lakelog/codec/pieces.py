"""A batch of records that were encoded one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.one import EncodedRecord
from lakelog.format.properties import LIGHT_QUEUE_PREFIX
from lakelog.format.queue_offsets import Queue, QueueOffsets
from lakelog.results import BatchResult, PutResult
from lakelog.status import AppendStatus, PutStatus

COLUMNS_FROM: Final = 48
"""Batches of at least this many messages return their results in columns."""


class Tentative(QueueOffsets):
    """Queue offsets as they will be once the preceding pieces are written."""

    __slots__ = ("_base",)

    def __init__(self, base: QueueOffsets) -> None:
        super().__init__()
        self._base = base

    def next(self, queue: Queue) -> int:
        """The next offset, including advances made here."""
        return self._base.next(queue) + super().next(queue)

    def new_light_queues(self, topics: Iterable[str]) -> int:
        """The number of light queues, including those advanced here."""
        added = {topic for topic, _ in self._next if topic.startswith(LIGHT_QUEUE_PREFIX)}
        return self._base.new_light_queues(added.union(topics))


class EncodedRecordList(EncodedBatch):
    """Several records, each an :class:`EncodedRecord` of its own."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Sequence[EncodedRecord]) -> None:
        self._pieces = pieces
        self.count = len(pieces)
        self.wait = any(piece.wait for piece in pieces)
        self.buffer = bytearray().join(piece.buffer for piece in pieces)

    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Place all pieces one after the other in this segment, or none of them."""
        # The store advances `queue_offsets` only after the write. Until then, pieces of the same
        # queue take consecutive offsets from a table laid over it.
        tentative = Tentative(queue_offsets)
        at = position
        for piece in self._pieces:
            status = piece.place(at, remaining - (at - position), tentative, now_ms)
            if status is not AppendStatus.PUT_OK:
                return status
            piece.advance(tentative)
            at += len(piece.buffer)
        self.buffer = bytearray().join(piece.buffer for piece in self._pieces)
        return AppendStatus.PUT_OK

    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Advance the queue offsets of all pieces."""
        for piece in self._pieces:
            piece.advance(queue_offsets)

    def results(self, status: PutStatus) -> Sequence[PutResult]:
        """One result per piece; for large batches, as columns."""
        pieces = self._pieces
        if len(pieces) < COLUMNS_FROM:
            return [piece.result(status) for piece in pieces]
        import numpy as np  # few batches are large

        return BatchResult(
            status,
            [piece.queue for piece in pieces],
            np.array([piece.queue_offset for piece in pieces], np.int64),
            np.array([piece.physical_offset for piece in pieces], np.int64),
            np.array([len(piece.buffer) for piece in pieces], np.int64),
            pieces[0].store_timestamp_ms,
            [piece.store_host for piece in pieces],
        )
