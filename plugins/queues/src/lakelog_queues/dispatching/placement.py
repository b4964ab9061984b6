"""Determines the place of each unit in its queue.

The place of a unit is the queue offset in its record. If it is higher than the end of the queue,
fillers take the places of the records that the log has lost. Two kinds of records cannot have their
place; their units are appended to the queue, so that every record in the log can be found:

- The queue offset is lower than the end, so its place is taken. Either queue offsets began again
  (RocketMQ deleted the topic, or forgot records that were not dispatched before a crash), or it is
  0, which RocketMQ never checks. RocketMQ writes no unit in the first case (5.3.3,
  ``ConsumeQueue.putMessagePositionInfo``).
- The queue offset is so high that more records would be missing than fit into the log in between.
  A wrong number must not cause gigabytes of fillers. RocketMQ appends every higher queue offset.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from lakelog.format.layout import RECORD_MIN_BYTES
from lakelog.format.queue_offsets import Queue
from lakelog.format.units import Units
from lakelog.runtime.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOG: Final = logging.getLogger(__name__)


def placed(queue: Queue, units: Units, end: int, reached: int) -> NDArray[np.int64] | None:
    """The place of each unit, ``int64``, ascending; ``None`` if they are consecutive from ``end``.

    :param end: queue offset after the last unit of the queue
    :param reached: physical end offset of that unit's record
    """
    stated = units.queue_offsets
    if np.array_equal(stated, np.arange(end, end + len(stated))):
        return None
    places, odd, place, behind = [], [], end, reached
    rows = zip(stated.tolist(), units.offsets.tolist(), units.sizes.tolist(), strict=True)
    for at, (queue_offset, offset, size) in enumerate(rows):
        if queue_offset > place and is_explained(queue_offset - place, offset - behind):
            _LOG.warning(
                "queue %s/%d: the log lacks the records %d to %d before offset %d; fillers take "
                "their places",
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
    """Whether ``missing`` records fit into ``gap_bytes`` of the log."""
    return missing * RECORD_MIN_BYTES <= gap_bytes


def _log(queue: Queue, units: Units, end: int, odd: list[int]) -> None:
    first = odd[0]
    _LOG.warning(
        "queue %s/%d ends at %d: %d of %d records cannot have their own queue offset (the first, "
        "at %d, has %d); they are appended in the order of the log",
        *queue,
        end,
        len(odd),
        len(units),
        int(units.offsets[first]),
        int(units.queue_offsets[first]),
    )
