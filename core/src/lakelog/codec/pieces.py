"""A batch of records that were encoded one by one: small batches, and those with light queues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.one import EncodedOne
from lakelog.properties import LIGHT_QUEUE_PREFIX
from lakelog.queueoffsets import Queue, QueueOffsets
from lakelog.results import PutResult
from lakelog.status import AppendStatus, PutStatus


class Tentative(QueueOffsets):
    """Queue offsets as they will be once the pieces before were written."""

    __slots__ = ("_base",)

    def __init__(self, base: QueueOffsets) -> None:
        super().__init__()
        self._base = base

    def next(self, queue: Queue) -> int:
        """The offset, with what was advanced here."""
        return self._base.next(queue) + super().next(queue)

    def new_light_queues(self, topics: Iterable[str]) -> int:
        """How many there would be, with those that were advanced here."""
        added = {topic for topic, _ in self._next if topic.startswith(LIGHT_QUEUE_PREFIX)}
        return self._base.new_light_queues(added.union(topics))


class EncodedPieces(EncodedBatch):
    """Several records, each an :class:`EncodedOne` of its own."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Sequence[EncodedOne]) -> None:
        self._pieces = pieces
        self.count = len(pieces)
        self.wait = any(piece.wait for piece in pieces)
        self.buffer = bytearray().join(piece.buffer for piece in pieces)

    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Place one after the other; all of them go into this segment, or none."""
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
        """Take the offsets of all pieces."""
        for piece in self._pieces:
            piece.advance(queue_offsets)

    def results(self, status: PutStatus) -> list[PutResult]:
        """One result per piece."""
        return [piece.result(status) for piece in self._pieces]
