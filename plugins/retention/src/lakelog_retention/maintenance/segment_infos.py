"""The description of segments for a cleaner.

The store time of a segment's last message is found by reading the segment's last few KiB, or more
if they hold no whole record. It is determined once per segment, since sealed segments do not
change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from lakelog.interfaces import MaintainedLog, SegmentInfo
from lakelog.log.reading.log_reader import LogReader
from lakelog.log.reading.pieces import Blank, Damage
from lakelog.log.store_directory import StoreDirectory
from lakelog_retention.maintenance.pin_check import PinValidator
from lakelog_retention.pins import Pin, holders, read_pins

_LOG: Final = logging.getLogger("lakelog")
_LOOKS: Final = (64 << 10, 1 << 20, 8 << 20)
"""Bytes to read from the end of a segment, in successive attempts; then the whole segment."""


class SegmentInfos:
    """The sealed segments of a log.

    :param readers: returns the number of held maps of the segment that starts at an offset
    :param pin_expires_after_ms: see :class:`~lakelog_retention.settings.MaintenanceSettings`
    """

    def __init__(
        self, log: MaintainedLog, readers: Callable[[int], int], pin_expires_after_ms: int | None
    ) -> None:
        self._directory: StoreDirectory = log.directory
        self._reader: LogReader = log.reader
        self._starts = log.starts
        self._size_bytes = log.segment_size_bytes
        self._readers = readers
        self._pin_expires_after_ms = pin_expires_after_ms
        self._times_ms: dict[int, int | None] = {}
        self._judge = PinValidator(log.reader.pieces)
        self._logged = frozenset[str]()

    @property
    def minimum(self) -> int:
        """Offset where the log begins."""
        return self._reader.min_offset

    def sealed(self, now_ms: int) -> list[SegmentInfo]:
        """The segments that hold acknowledged messages only, oldest first."""
        pins = self._pins(now_ms)
        end, minimum = self._reader.max_offset, self._reader.min_offset
        pins = self._judged(pins, minimum, end)
        starts = [
            start
            for start in self._starts()
            if start >= minimum and start + self._size_bytes <= end
        ]
        for start in [start for start in self._times_ms if start < minimum]:
            del self._times_ms[start]
        times_ms = self._last_times(starts, now_ms)
        return [
            SegmentInfo(
                start,
                self._size_bytes,
                last_ms,
                self._readers(start),
                holders(pins, start + self._size_bytes, now_ms),
            )
            for start, last_ms in zip(starts, times_ms, strict=True)
        ]

    def _pins(self, now_ms: int) -> list[Pin]:
        """The pins that have not expired."""
        after_ms = self._pin_expires_after_ms
        pins = read_pins(self._directory.files, self._directory.path)
        return [each for each in pins if not each.has_expired(now_ms, after_ms)]

    def _judged(self, pins: Sequence[Pin], minimum: int, end: int) -> list[Pin]:
        """Check the pins; a problem is logged once while it lasts, since it lets the disk fill."""
        judged = [self._judge.judged(each, minimum, end) for each in pins]
        problems = frozenset(each.problem for each in judged if each.problem is not None)
        for each in sorted(problems - self._logged):
            _LOG.warning("%s", each)
        self._logged = problems
        return judged

    def _last_times(self, starts: Sequence[int], now_ms: int) -> list[int]:
        """Times of last messages; a segment without a whole record takes the next one's."""
        times_ms: list[int] = []
        later_ms = now_ms
        for start in reversed(starts):
            if start not in self._times_ms:
                self._times_ms[start] = self._find(start)
            found = self._times_ms[start]
            later_ms = later_ms if found is None else found
            times_ms.append(later_ms)
        return times_ms[::-1]

    def _find(self, start: int) -> int | None:
        for look in (*(look for look in _LOOKS if look < self._size_bytes), self._size_bytes):
            found = self._last_time(start + self._size_bytes - look, start + self._size_bytes)
            if found is not None:
                return found
        return None

    def _last_time(self, begin: int, end: int) -> int | None:
        last_ms = None
        for piece in self._reader.pieces(begin, end):
            if not isinstance(piece, Blank | Damage) and len(piece):
                last_ms = int(piece.store_timestamps_ms[-1])
        return last_ms
