"""For each record of a batch: its queue, and the how-manieth of that queue it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lakelog.queueoffsets import Queue, QueueOffsets

Ints = NDArray[np.int64]

_FEW_CODES = 1 << 16


class OneQueueRanks:
    """:class:`QueueRanks` of records that all go to one queue."""

    __slots__ = ("counts", "queues")

    def __init__(self, queue: Queue, count: int) -> None:
        self.queues = [queue]
        self.counts = [count]

    def offsets(self, queue_offsets: QueueOffsets) -> Ints:
        """The queue offset of each record."""
        first = queue_offsets.next(self.queues[0])
        return np.arange(first, first + self.counts[0])


class QueueRanks:
    """Ranks of records in their queues, known before the queues' offsets are.

    :ivar queues: the different queues that take offsets
    :ivar counts: how many offsets each of them takes
    """

    __slots__ = ("_index", "_queued", "_rank", "counts", "queues")

    def __init__(self, queues: Sequence[Queue], codes: Ints, queued: NDArray[np.bool_]) -> None:
        """Rank records by ``codes``, numbers that are equal where queues are."""
        everywhere = bool(queued.all())
        self._queued = None if everywhere else queued
        self._index, self._rank = np.zeros((2, len(codes)), np.int64)
        self.queues: list[Queue] = []
        self.counts: list[int] = []
        if everywhere:
            self._group(queues, codes, _order(codes))
        elif queued.any():
            at = np.flatnonzero(queued)
            self._group(queues, codes, at[_order(codes[at])])

    def _group(self, queues: Sequence[Queue], codes: Ints, order: Ints) -> None:
        """Number the groups of ``order``, in which records of one queue stand together."""
        grouped = codes[order]
        changes = (grouped[1:] != grouped[:-1]).nonzero()[0]
        borders = np.zeros(len(changes) + 2, np.int64)
        borders[1:-1], borders[-1] = changes + 1, len(order)
        firsts, counts = borders[:-1], borders[1:] - borders[:-1]
        self._index[order] = np.arange(len(firsts)).repeat(counts)
        self._rank[order] = np.arange(len(order)) - firsts.repeat(counts)
        self.queues = [queues[first] for first in order[firsts].tolist()]
        self.counts = counts.tolist()

    def offsets(self, queue_offsets: QueueOffsets) -> Ints:
        """The queue offset of each record; 0 for those that take none."""
        if not self.queues:
            return self._rank
        bases = np.array([queue_offsets.next(queue) for queue in self.queues], np.int64)
        offsets = bases[self._index] + self._rank
        return offsets if self._queued is None else offsets * self._queued


def _order(codes: Ints) -> Ints:
    """The records of one code behind those of a smaller one; what fits 16 bits is sorted faster."""
    least = codes.min()
    if int(codes.max()) - int(least) < _FEW_CODES:
        codes = (codes - least).astype(np.uint16)
    return np.argsort(codes, kind="stable")
