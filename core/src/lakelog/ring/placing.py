"""Many records that another process encoded: the owner's part of :mod:`lakelog.codec.many`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.dtypes import LONG, scatter
from lakelog.codec.encoded import EncodedBatch
from lakelog.codec.seals import seal_all
from lakelog.layout import AT_QUEUE_OFFSET, BLANK_MIN_BYTES
from lakelog.status import AppendStatus, PutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakelog.codec.ranks import OneQueueRanks, QueueRanks
    from lakelog.queueoffsets import QueueOffsets
    from lakelog.results import PutResult
    from lakelog.ring.parts import Parts

Ints = NDArray[np.int64]

_OFFSETS: Final = np.dtype([("queue_offset", ">i8"), ("physical_offset", ">i8")])


class EncodedTaken(EncodedBatch):
    """Checked records, back to back in memory of the owner, complete but for their place."""

    __slots__ = ("_places", "_ranks", "_sealed", "_sizes", "_starts", "_stored_at")

    def __init__(
        self,
        parts: Parts,
        starts: Ints,
        sizes: Ints,
        store_time_at: int,
        ranks: QueueRanks | OneQueueRanks,
    ) -> None:
        self.buffer = parts.records  # type: ignore[assignment]  # writable, as a bytearray is
        self.count = len(sizes)
        self.wait = parts.wait
        self._starts, self._sizes = starts, sizes
        self._stored_at = starts + store_time_at
        self._ranks = ranks
        self._sealed = parts.sealed

    def place(
        self, position: int, remaining: int, queue_offsets: QueueOffsets, now_ms: int
    ) -> AppendStatus:
        """Patch offsets and store time of all, then seal."""
        buffer, starts = self.buffer, self._starts
        if len(buffer) + BLANK_MIN_BYTES > remaining:
            return AppendStatus.END_OF_FILE
        self._places = places = np.empty((self.count, 4), np.int64)
        places[:, 0] = self._ranks.offsets(queue_offsets)
        places[:, 1] = starts + position
        places[:, 2] = self._sizes
        places[:, 3] = now_ms
        offsets: Any = places[:, :2].astype(">i8").view(_OFFSETS).reshape(-1)
        scatter(buffer, _OFFSETS, starts + AT_QUEUE_OFFSET, offsets)
        scatter(buffer, LONG, self._stored_at, places[:, 3].astype(LONG))
        if self._sealed:
            seal_all(buffer, starts, starts + self._sizes)
        return AppendStatus.PUT_OK

    def advance(self, queue_offsets: QueueOffsets) -> None:
        """Take as many offsets of each queue as it has records here."""
        for queue, count in zip(self._ranks.queues, self._ranks.counts, strict=True):
            queue_offsets.advance(queue, count)

    def places(self) -> memoryview:
        """What an answer says of the records; only after :meth:`place`."""
        return self._places.data.cast("B")

    def results(self, status: PutStatus) -> Sequence[PutResult]:
        """Nobody asks: the producer makes them, from :meth:`places`."""
        raise NotImplementedError("the results of what was taken are the producer's to make")
