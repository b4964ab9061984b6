"""Reads store times along one queue, from the heads of records only.

Units are read one at a time, and all at once when a search has narrowed to a short range.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from lakelog.format.queue_offsets import Queue
from lakelog.format.units import Units
from lakelog.interfaces import QueueReader

_AT_ONCE: Final = 4096
"""Number of units (80 KiB) whose reading takes no longer than a few reads of one unit."""


class HeadLog(Protocol):
    """The part of :class:`~lakelog_queues.finding.records.PlacedRecords` that is needed here."""

    def store_time_ms(self, offset: int, size: int) -> int | None:
        """The store time in ms of the record with this place and size; ``None`` if there is none.

        :param offset: physical offset
        """


class TimedRecord(NamedTuple):
    """A readable message.

    :ivar offset: its queue offset
    :ivar behind: the queue offset of the next message
    :ivar time_ms: its store time, in ms since 1970
    """

    offset: int
    behind: int
    time_ms: int


class Heads:
    """Reads store times of one queue; made for each search."""

    def __init__(self, queues: QueueReader, log: HeadLog, queue: Queue) -> None:
        self._queues = queues
        self._log = log
        self._queue = queue
        self._held: Units | None = None

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
