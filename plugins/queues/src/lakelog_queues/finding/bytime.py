"""Finds queue offsets by store time, with a binary search that reads only heads of records.

Source: RocketMQ 5.3.3, ``ConsumeQueue.getOffsetInQueueByTime`` and ``BoundaryType``. The search
assumes that store times ascend with the queue offset. If the clock was set back, several offsets
may fit, and the search returns one of them. Units are read one at a time, and all at once when a
search has narrowed to a short range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

import attrs

from lakelog.arguments import WrongValue
from lakelog.format.queue_offsets import Queue, Units
from lakelog.hooks import QueueReader
from lakelog_queues.arguments import queue_name, time_ms
from lakelog_queues.finding.records import PlacedRecords

_AT_ONCE: Final = 4096
"""Number of units (80 KiB) whose reading takes no longer than a few reads of one unit."""
Boundary: TypeAlias = Literal["lower", "upper"]


class TimedRecord(NamedTuple):
    """A readable message.

    :ivar offset: its queue offset
    :ivar behind: the queue offset of the next message
    :ivar time_ms: its store time, in ms since 1970
    """

    offset: int
    behind: int
    time_ms: int


@attrs.define(eq=False)
class Heads:
    """Reads store times of one queue; made for each search."""

    _queues: QueueReader
    _log: PlacedRecords
    _queue: Queue
    _held: Units | None = None

    def narrow(self, low: int, high: int) -> None:
        """Restrict later calls to queue offsets from ``low`` to ``high``; may read units ahead."""
        if self._held is None and high - low <= _AT_ONCE:
            self._held = self._queues.units(self._queue, low, high - low)

    def first_readable(self, start: int, end: int) -> TimedRecord | None:
        """The first readable message at or after queue offset ``start`` and before ``end``."""
        while start < end:
            units, at = self._at(start)
            if at == len(units):
                return None
            number = int(units.queue_offsets[at])
            if number >= end:  # there is no unit before `end`
                return None
            behind = number + max(int(units.counts[at]), 1)
            time = self._log.store_time_ms(int(units.offsets[at]), int(units.sizes[at]))
            if time is not None:
                return TimedRecord(number, behind, time)
            start = max(behind, start + 1)
        return None

    def _at(self, start: int) -> tuple[Units, int]:
        """Units, and the index among them of the unit at a queue offset, or else of the next."""
        held = self._held
        if held is not None and len(held):
            at = int(held.queue_offsets.searchsorted(start, "right")) - 1
            if at >= 0 and start < int(held.queue_offsets[at]) + int(held.counts[at]):
                return held, at
        return self._queues.units(self._queue, start, 1), 0


@attrs.frozen
class TimeSearch:
    """Finds queue offsets by time.

    :ivar minimum: returns the physical offset of the first byte still in the log
    """

    queues: QueueReader
    log: PlacedRecords
    minimum: Callable[[], int]

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = "lower"
    ) -> int:
        """The queue offset for a store time in ms since 1970.

        ``lower`` is the first message stored at that time or later; if there is none, the end of
        the queue. ``upper`` is the last message stored at that time or earlier; if there is none,
        the first offset of the queue. For a time between two messages, ``upper`` is therefore less
        than ``lower``, as in RocketMQ. The result is 0 if the queue does not exist. Messages that
        cannot be read are skipped.

        Raises ``TypeError`` for arguments of a wrong type. Raises ``ValueError`` for a time that is
        evidently in seconds, an unknown boundary, or a queue id below 0.
        """
        timestamp_ms = time_ms("timestamp_ms", timestamp_ms)
        if boundary not in ("lower", "upper"):
            raise WrongValue(f"boundary {boundary!r} is unknown; give 'lower' or 'upper'")
        bounds = self._bounds(topic, queue_id)
        if bounds is None:
            return 0
        first, end = bounds
        heads = Heads(self.queues, self.log, (topic, queue_id))
        if boundary == "lower":
            return _search(heads, first, end, lambda ms: ms >= timestamp_ms)[1]
        return max(first, _search(heads, first, end, lambda ms: ms > timestamp_ms)[0])

    def earliest_time(self, topic: str, queue_id: int) -> int | None:
        """The store time of the first readable message, in ms; ``None`` if there is none."""
        bounds = self._bounds(topic, queue_id)
        if bounds is None:
            return None
        found = Heads(self.queues, self.log, (topic, queue_id)).first_readable(*bounds)
        return None if found is None else found.time_ms

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        return self.queues.bounds(queue_name(topic, queue_id), self.minimum())


def _search(heads: Heads, low: int, high: int, is_behind: Callable[[int], bool]) -> tuple[int, int]:
    """The last message for which ``is_behind`` is false, and the first for which it is true.

    Queue offsets; ``low`` and ``high`` if there is no such message.
    """
    before, behind = low, high
    # A message that cannot be read has no time. So each step looks at the first readable message
    # from the middle on; if there is none, the upper half is dropped. After a message before the
    # boundary, the search continues at `found.behind`, past the unreadable ones.
    while low < high:
        heads.narrow(low, high)
        middle = (low + high) // 2
        found = heads.first_readable(middle, high)
        if found is None:
            high = middle
        elif is_behind(found.time_ms):
            behind, high = found.offset, middle
        else:
            before, low = found.offset, found.behind
    return before, behind
