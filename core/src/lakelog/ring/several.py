"""A few records in one buffer, placed one by one where they stand."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.one import EncodedOne
from lakelog.codec.pieces import Tentative
from lakelog.queueoffsets import QueueOffsets
from lakelog.results import PutResult
from lakelog.status import AppendStatus, PutStatus


class EncodedSeveral(EncodedBatch):
    """Like :class:`~lakelog.codec.pieces.EncodedPieces`, whose records are slices of one buffer."""

    __slots__ = ("_pieces",)

    def __init__(self, buffer: memoryview, pieces: Sequence[EncodedOne], wait: bool) -> None:
        self.buffer = buffer  # type: ignore[assignment]  # as long as its pieces are, and written to
        self.count = len(pieces)
        self.wait = wait
        self._pieces = pieces

    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Place one after the other."""
        tentative = Tentative(queue_offsets)
        end = position + remaining
        for piece in self._pieces:
            status = piece.place(position, end - position, tentative, now_ms)
            if status is not AppendStatus.PUT_OK:
                return status
            piece.advance(tentative)
            position += len(piece.buffer)
        return AppendStatus.PUT_OK

    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Take the offsets of all."""
        for piece in self._pieces:
            piece.advance(queue_offsets)

    def results(self, status: PutStatus) -> list[PutResult]:
        """One result per record."""
        return [piece.result(status) for piece in self._pieces]
