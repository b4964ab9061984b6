"""The ranks of taken records in their queues, which are named only where somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lakelog.codec.ranks import OneQueueRanks, QueueRanks
from lakelog.layout import AT_QUEUE_ID, AT_SYS_FLAG
from lakelog.sysflag import PREPARED

if TYPE_CHECKING:
    from lakelog.queueoffsets import Queue
    from lakelog.ring.bits import Bits
    from lakelog.ring.parts import Parts

Ints = NDArray[np.int64]


class _Queues(Sequence["Queue"]):
    """The queue of each record, made only where somebody asks for it."""

    def __init__(self, parts: Parts, queue_ids: Ints) -> None:
        self._parts, self._queue_ids = parts, queue_ids

    def __len__(self) -> int:
        return len(self._queue_ids)

    def __getitem__(self, number: Any) -> Any:
        return self._parts.topic_of(number), int(self._queue_ids[number])


def ranks_of(
    parts: Parts, numbers: Ints | None, heads: NDArray[Any], bits: Bits
) -> QueueRanks | OneQueueRanks:
    """The ranks of all records; ``numbers`` says of which topic each is, if there are several."""
    prepared = bits.some[AT_SYS_FLAG + 3] & PREPARED
    queue_id = bits.only(AT_QUEUE_ID, AT_QUEUE_ID + 4)
    if queue_id is not None and numbers is None and not prepared:
        return OneQueueRanks((parts.topics[0], int.from_bytes(queue_id)), len(heads))
    codes = heads["queue_id"].astype(np.int64)
    queued = heads["sys_flag"] & PREPARED == 0 if prepared else np.ones(len(heads), np.bool_)
    queues = _Queues(parts, codes)
    return QueueRanks(queues, codes if numbers is None else codes + (numbers << 32), queued)
