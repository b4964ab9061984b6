"""One queue of batches: units in files, and for a reader those in memory that follow them.

RocketMQ (``BatchConsumeQueue``) leaves out records that are not behind the last one, and appends
all others, whatever queue offset they state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.format.queue_offsets import Queue
from lakelog.format.units import Units

if TYPE_CHECKING:
    from lakelog_queues.files.batchfiles import BatchQueueFiles

_NO_LONGS: Final = np.zeros(0, np.int64)
_NO_INTS: Final = np.zeros(0, np.int32)
NO_UNITS: Final = Units(_NO_LONGS, _NO_LONGS, _NO_INTS, _NO_LONGS, _NO_INTS)
_ALL: Final = (1 << 63) - 1


class BatchQueue:
    """Units of 46 bytes; changed by one thread, read by any.

    :ivar queue: topic and queue id
    :ivar reached: physical offset behind the last record that has a unit; 0 without one
    """

    kind: Final = "BatchCQ"

    def __init__(self, queue: Queue, files: BatchQueueFiles, *, read_only: bool = False) -> None:
        self.queue = queue
        self.reached = 0
        self._files = files
        self._read_only = read_only
        self._limit = _ALL
        self._held = NO_UNITS

    @property
    def first(self) -> int:
        """0: what stands at the front of the files is found through the log."""
        return 0

    @property
    def end(self) -> int:
        """The queue offset behind the last unit."""
        return self.bounds(0)[1]

    def load(self, *, thorough: bool) -> bool:
        """Find out how far the files reach; whether they look as they should.

        :param thorough: look at all files, and remove what no reader could pass
        """
        if thorough and not self._read_only:
            self._files.cut_at_strange()
        self.reached = self._files.end_physical
        return True

    def is_empty(self) -> bool:
        """Whether there is no unit at all."""
        return not self.reached

    def bounds(self, minimum: int) -> tuple[int, int]:
        """The first queue offset of a record at or behind ``minimum``, and the end."""
        first, end = self._files.bounds(minimum)
        if not self._read_only:
            return first, end
        units = self.read(first, _ALL)
        there = units[units.offsets >= minimum]
        if len(units):
            end = int(units.queue_offsets[-1]) + int(units.counts[-1])
        return (int(there.queue_offsets[0]) if len(there) else end), end

    def plain(self, _minimum: int, _offset: int | None) -> None:
        """Never, since a record holds several messages; see :meth:`.SimpleQueue.plain`."""

    def read(self, first: int, count: int) -> Units:
        """At most ``count`` units, from the one that holds queue offset ``first`` on."""
        units = self._files.read(first, count)
        if not self._read_only:
            return units
        units, held = units[units.offsets < self._limit], self._held
        behind = held[held.queue_offsets + held.counts > first]
        return _joined(units, behind[: max(0, count - len(units))])

    def before(self, offset: int) -> int:
        """Physical offset of the last record before ``offset`` that has a unit; 0 without one."""
        return self._files.before(offset)

    def oldest(self) -> int | None:
        """Physical offset of the record of the first unit; ``None`` where there is no unit."""
        first = self.read(self.bounds(0)[0], 1)
        return int(first.offsets[0]) if len(first) else None

    def append(self, units: Units, store_times_ms: NDArray[np.int64]) -> None:
        """Take units in the order of the log; those that are there already change nothing."""
        new = units.offsets >= self.reached
        units, store_times_ms = units[new], store_times_ms[new]
        if not len(units):
            return
        if self._read_only:
            self._limit = min(self._limit, int(units.offsets[0]))
            self._held = _joined(self._held, units)
        else:
            self._files.append(units, store_times_ms)
        self.reached = int(units.offsets[-1]) + int(units.sizes[-1])

    def truncate(self, end_offset: int) -> None:
        """Drop the units of records at or behind a physical offset."""
        if self.reached <= end_offset:
            return
        if not self._read_only:
            self._files.truncate(end_offset)
            self.reached = self._files.end_physical
            return
        self._limit = min(self._limit, end_offset)
        self._held = self._held[self._held.offsets < end_offset]
        left = self.read(self._files.bounds(0)[0], _ALL)
        self.reached = int(left.offsets[-1]) + int(left.sizes[-1]) if len(left) else 0

    def retreat(self, minimum: int) -> bool:
        """Give up files that hold nothing from physical offset ``minimum`` on; whether any is."""
        return not self._read_only and self._files.retreat(minimum)

    def remove_front(self) -> int:
        """Remove the files that were given up; how many."""
        return self._files.remove_front()

    def remove(self) -> None:
        """Forget everything."""
        self.truncate(0)

    def distrust(self, durable_end: int) -> None:  # noqa: ARG002  # as every queue
        """Sync all of it at the next flush: who wrote it may have died before a sync."""
        self._files.distrust()

    def flush(self, least_pages: int) -> None:
        """Sync files of which so many pages changed."""
        self._files.flush(least_pages)

    def close(self) -> None:
        """Let go of files."""
        self._files.close()


def _joined(one: Units, other: Units) -> Units:
    columns = zip(
        attrs.astuple(one, recurse=False), attrs.astuple(other, recurse=False), strict=True
    )
    return Units(*(np.concatenate(pair) for pair in columns))
