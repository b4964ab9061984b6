"""For each record of a batch: its queue, and the how-manieth of that queue it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lakelog.queueoffsets import Queue, QueueOffsets

Ints = NDArray[np.int64]


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
        self._queued = queued
        self._index, self._rank = np.zeros((2, len(codes)), np.int64)
        self.queues: list[Queue] = []
        self.counts: list[int] = []
        at = np.flatnonzero(queued)
        if len(at):
            self._group(queues, codes, at[np.argsort(codes[at], kind="stable")])

    def _group(self, queues: Sequence[Queue], codes: Ints, order: Ints) -> None:
        """Number the groups of ``order``, in which records of one queue stand together."""
        grouped = codes[order]
        ends = np.append(np.flatnonzero(grouped[1:] != grouped[:-1]) + 1, len(order))
        firsts = np.append(0, ends[:-1])
        counts = ends - firsts
        self._index[order] = np.repeat(np.arange(len(firsts)), counts)
        self._rank[order] = np.arange(len(order)) - np.repeat(firsts, counts)
        self.queues = [queues[first] for first in order[firsts].tolist()]
        self.counts = counts.tolist()

    def offsets(self, queue_offsets: QueueOffsets) -> Ints:
        """The queue offset of each record; 0 for those that take none."""
        if not self.queues:
            return self._rank
        bases = np.array([queue_offsets.next(queue) for queue in self.queues], np.int64)
        return (bases[self._index] + self._rank) * self._queued
