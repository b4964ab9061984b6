"""Store times along one queue: units are read one by one, or many at once where a search narrows.

Reads only the head of a record.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from lakelog.format.queue_offsets import Queue
from lakelog.format.units import Units
from lakelog.interfaces import QueueReader

_AT_ONCE: Final = 4096
"""Units, 80 KiB: read in the time that a few calls take."""


class HeadLog(Protocol):
    """The part of :class:`~lakelog.log.reading.log_reader.LogReader` that is needed here."""

    def store_time_ms(self, offset: int, size: int) -> int | None:
        """The store time of the record at a place, if one stands there."""


class TimedRecord(NamedTuple):
    """A message that can be read: its queue offset, the next one, and its store time in ms."""

    offset: int
    behind: int
    time_ms: int


class Heads:
    """Looks at one queue, for the length of one call."""

    def __init__(self, queues: QueueReader, log: HeadLog, queue: Queue) -> None:
        self._queues = queues
        self._log = log
        self._queue = queue
        self._held: Units | None = None

    def narrow(self, low: int, high: int) -> None:
        """What is asked for from now on stands from ``low`` to ``high``."""
        if self._held is None and high - low <= _AT_ONCE:
            self._held = self._queues.units(self._queue, low, high - low)

    def first_readable(self, start: int, end: int) -> TimedRecord | None:
        """The first message from ``start`` on, and before ``end``, that can be read."""
        while start < end:
            units, at = self._at(start)
            if at == len(units):
                return None
            number = int(units.queue_offsets[at])
            if number >= end:  # places are empty up to there
                return None
            behind = number + max(int(units.counts[at]), 1)
            time = self._log.store_time_ms(int(units.offsets[at]), int(units.sizes[at]))
            if time is not None:
                return TimedRecord(number, behind, time)
            start = max(behind, start + 1)
        return None

    def _at(self, start: int) -> tuple[Units, int]:
        """The unit of a queue offset, or the next one: among which it is, and which one."""
        held = self._held
        if held is not None and len(held):
            at = int(held.queue_offsets.searchsorted(start, "right")) - 1
            if at >= 0 and start < int(held.queue_offsets[at]) + int(held.counts[at]):
                return held, at
        return self._queues.units(self._queue, start, 1), 0
