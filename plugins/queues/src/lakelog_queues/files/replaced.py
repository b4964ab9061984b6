"""The place of each unit in its queue; units of lost records, which lead to a repair's record.

The place of a unit is the queue offset in its record. If it is higher than the end of the queue,
fillers take the places of the records that the log has lost. Two kinds of records cannot have their
place; their units are appended to the queue, so that every record in the log can be found:

- The queue offset is lower than the end, so its place is taken. Either queue offsets began again
  (RocketMQ deleted the topic, or forgot records that were not dispatched before a crash), or it is
  0, which RocketMQ never checks. RocketMQ writes no unit in the first case (5.3.3,
  ``ConsumeQueue.putMessagePositionInfo``).
- The queue offset is so high that more records would be missing than fit into the log in between.
  A wrong number must not cause gigabytes of fillers. RocketMQ appends every higher queue offset.

The units of damaged records become fillers, as RocketMQ fills the front of a queue (see
:mod:`lakelog_queues.units.simpleunits`). A filler has physical offset 0. RocketMQ's store finds no
record there, and then skips all other units that lead into the first segment (5.3.3,
``DefaultMessageStore.getMessage``, where ``nextPhyFileStartOffset`` is the second segment).
Therefore, once a repair has put a whole record in place of the damage, the fillers lead to it. Then
physical offsets ascend along the queue, and RocketMQ finds that record and continues with the next
unit. lakelog skips such units like fillers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from lakelog.format.layout import RECORD_MIN_BYTES
from lakelog.format.queue_offsets import Flags, Longs, Queue, Units
from lakelog.lazy import np
from lakelog_queues.units.simpleunits import RawUnits

if TYPE_CHECKING:
    from lakelog_queues.files.simplequeue import SimpleQueue

_LOG: Final = logging.getLogger(__name__)


def placed(queue: Queue, units: Units, end: int, reached: int) -> Longs | None:
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
        first = int(units.offsets[odd[0]]), int(units.queue_offsets[odd[0]])
        _LOG.warning(
            "queue %s/%d ends at %d: %d of %d records cannot have their own queue offset (the "
            "first, at %d, has %d); they are appended in the order of the log",
            *(*queue, end, len(odd), len(units), *first),
        )
    return np.array(places, np.int64)


def is_explained(missing: int, gap_bytes: int) -> bool:
    """Whether ``missing`` records fit into ``gap_bytes`` of the log."""
    return missing * RECORD_MIN_BYTES <= gap_bytes


@attrs.frozen(eq=False)
class Replacements:
    """The records of repairs, in the order of the log.

    :ivar offsets: physical offsets, ``int64``
    :ivar sizes: in bytes, ``int64``
    """

    offsets: Longs
    sizes: Longs

    @classmethod
    def of(cls, units: Iterable[Units]) -> Replacements:
        """The records of the given units, which are those of the topic of repairs."""
        runs = list(units)
        offsets = np.concatenate([np.zeros(0, np.int64), *(each.offsets for each in runs)])
        sizes = np.concatenate([np.zeros(0, np.int64), *(each.sizes for each in runs)])
        order = np.argsort(offsets, kind="stable")
        return cls(offsets[order], sizes[order].astype(np.int64))

    def __len__(self) -> int:
        """The number of records."""
        return len(self.offsets)

    def between(self, low: int, high: int) -> tuple[int, int] | None:
        """Physical offset and size of the shortest record that starts in a range of the log.

        ``None`` if there is none.
        """
        first, stop = np.searchsorted(self.offsets, (low, high)).tolist()
        if first == stop:
            return None
        at = first + int(self.sizes[first:stop].argmin())
        return int(self.offsets[at]), int(self.sizes[at])

    def are_pointed_to(self, raw: RawUnits) -> Flags:
        """For each unit, whether it has the physical offset and size of one of the records."""
        offsets = raw["offset"].astype(np.int64)
        near = np.minimum(np.searchsorted(self.offsets, offsets), len(self) - 1)
        led: Flags = self.offsets[near] == offsets
        led &= self.sizes[near] == raw["size"]
        return led

    def point(self, raw: RawUnits, rows: Longs, units: Units, reached: int) -> None:
        """Let fillers lead to a repair's record that is between the records around them.

        :param raw: units in file format, changed in place
        :param rows: the indices of ``units`` in ``raw``; fillers are between them
        :param reached: physical end offset of the record before ``raw``
        """
        before = np.concatenate([[reached], (units.offsets + units.sizes)[:-1]]).tolist()
        starts = np.concatenate([[0], rows[:-1] + 1])
        for at in np.flatnonzero(rows > starts).tolist():
            self._point(raw[starts[at] : rows[at]], before[at], int(units.offsets[at]))

    def point_front(self, raw: RawUnits, first_offset: int) -> None:
        """The same for the fillers before the first record of a queue, at ``first_offset``.

        Only for a queue that starts at 0, in a log that starts at 0. In any other log, fillers at
        the front stand for records that retention deleted, not for lost ones.
        """
        if is_explained(len(raw), first_offset):
            self._point(raw, 0, first_offset)

    def _point(self, fillers: RawUnits, low: int, high: int) -> None:
        found = self.between(low, high)
        if found is not None:
            fillers["offset"], fillers["size"] = found


class RepairReplacements:
    """The records of repairs, read from the queues of their topic and kept until those change.

    :param minimum: returns the physical offset of the first byte of the log; -1 while unknown
    :ivar queues: the queues of that topic
    """

    def __init__(self, minimum: Callable[[], int]) -> None:
        self._minimum = minimum
        self.queues: Mapping[Queue, SimpleQueue] = {}
        self._found: tuple[object, Replacements | None] = ((), None)

    def watch(self, name: Queue, queue: SimpleQueue) -> None:
        """Read from this queue, and no longer from an earlier one with the same name."""
        self.queues = {**self.queues, name: queue}

    def point_front(self, raw: RawUnits, first_offset: int) -> None:
        """See :meth:`Replacements.point_front`; does nothing unless the log starts at 0."""
        if self._minimum() == 0 and (replacements := self.now()):
            replacements.point_front(raw, first_offset)

    def now(self) -> Replacements | None:
        """The present records, if there are any; may be called from any thread."""
        if not self.queues:
            return None
        queues = list(self.queues.values())
        state = [(each.first, each.end, each.reached) for each in queues]
        seen, found = self._found
        if seen != state:
            found = Replacements.of(each.read(each.first, each.end - each.first) for each in queues)
            self._found = state, found
        return found
