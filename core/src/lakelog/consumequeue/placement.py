"""Which units of a run go into a queue: what RocketMQ does, unit by unit.

Source: ``ConsumeQueue.putMessagePositionInfo`` of 5.3.3. A unit goes to the end of the queue. If
its record states a lower queue offset, there is a unit for that already, and it is left out; unless
it states 0, which is never checked. If the record states a higher one, units are missing, and it
takes the place at the end all the same.
"""

from __future__ import annotations

import logging
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.queueoffsets import Queue
from lakelog.units import Units

_LOG: Final = logging.getLogger(__name__)


def placed(queue: Queue, units: Units, end: int) -> NDArray[np.int64] | None:
    """Numbers of the units that a queue with ``end`` units takes; ``None`` for all of them."""
    stated = units.queue_offsets
    if np.array_equal(stated, np.arange(end, end + len(stated))):
        return None
    taken: list[int] = []
    odd: list[int] = []
    for at, queue_offset in enumerate(stated.tolist()):
        place = end + len(taken)
        if queue_offset != place:
            odd.append(at)
        if not queue_offset or queue_offset >= place:
            taken.append(at)
    _log(queue, units, end, odd, len(units) - len(taken))
    return np.array(taken, np.int64)


def _log(queue: Queue, units: Units, end: int, odd: list[int], left_out: int) -> None:
    first = odd[0]
    _LOG.warning(
        "queue %s/%d ends at %d: %d of %d records do not state the queue offset of their place, "
        "the first, at %d, states %d; %d get no unit, as their places are taken; the others stand "
        "in the order of the log",
        *queue,
        end,
        len(odd),
        len(units),
        int(units.offsets[first]),
        int(units.queue_offsets[first]),
        left_out,
    )
