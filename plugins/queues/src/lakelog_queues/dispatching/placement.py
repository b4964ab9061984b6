"""Which place in a queue each unit of a run takes.

A unit stands at the place that its record states: between it and the one before, fillers stand for
records that the log has lost. Two kinds of records cannot have the place that they state, and go
to the end of the queue, so that everything in the log can be found:

- Those that state a lower one. It is taken: queue offsets began again (RocketMQ deleted the topic,
  or forgot records that were not dispatched before a crash), or the record states 0, which is never
  checked. RocketMQ (``ConsumeQueue.putMessagePositionInfo`` of 5.3.3) gives the former no unit.
- Those that state one so high that more records would be missing than fit in between in the log:
  a wrong number must not write gigabytes. RocketMQ puts all that state a higher one at the end.
"""

from __future__ import annotations

import logging
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakelog.format.layout import RECORD_MIN_BYTES
from lakelog.format.queue_offsets import Queue
from lakelog.format.units import Units

_LOG: Final = logging.getLogger(__name__)


def placed(queue: Queue, units: Units, end: int, reached: int) -> NDArray[np.int64] | None:
    """The place of each unit, which ascend; ``None`` if they just follow one another from ``end``.

    :param end: queue offset behind the queue's last unit
    :param reached: physical offset behind the record of that unit
    """
    stated = units.queue_offsets
    if np.array_equal(stated, np.arange(end, end + len(stated))):
        return None
    places, odd, place, behind = [], [], end, reached
    rows = zip(stated.tolist(), units.offsets.tolist(), units.sizes.tolist(), strict=True)
    for at, (queue_offset, offset, size) in enumerate(rows):
        if queue_offset > place and is_explained(queue_offset - place, offset - behind):
            _LOG.warning(
                "queue %s/%d: the log lacks the records %d to %d before offset %d; their places "
                "are filled",
                *(*queue, place, queue_offset - 1, offset),
            )
            place = queue_offset
        elif queue_offset != place:
            odd.append(at)
        places.append(place)
        place, behind = place + 1, offset + size
    if odd:
        _log(queue, units, end, odd)
    return np.array(places, np.int64)


def is_explained(missing: int, gap_bytes: int) -> bool:
    """Whether so many records can have stood in so many bytes of the log."""
    return missing * RECORD_MIN_BYTES <= gap_bytes


def _log(queue: Queue, units: Units, end: int, odd: list[int]) -> None:
    first = odd[0]
    _LOG.warning(
        "queue %s/%d ends at %d: %d of %d records cannot have the place that they state; the "
        "first, at %d, states %d; they stand in the order of the log",
        *queue,
        end,
        len(odd),
        len(units),
        int(units.offsets[first]),
        int(units.queue_offsets[first]),
    )
