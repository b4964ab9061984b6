"""One batch queue: units in files, and for a reader also units in memory after those.

As in RocketMQ's ``BatchConsumeQueue``, a record that does not follow the last one in the log gets
no unit; any other does, whatever queue offset it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from lakelog.format.queue_offsets import Queue, Units
from lakelog.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog_queues.files.batchfiles import BatchQueueFiles

_ALL: Final = (1 << 63) - 1


def no_units() -> Units:
    """Columns without an element."""
    longs, ints = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return Units(longs, longs, ints, longs, ints)


class BatchQueue:
    """A queue with units of 46 bytes; one thread changes it, any thread reads.

    :ivar queue: topic and queue id
    :ivar reached: physical end offset of the last record that has a unit; 0 without a unit
    """

    kind: Final = "BatchCQ"

    def __init__(self, queue: Queue, files: BatchQueueFiles, *, read_only: bool = False) -> None:
        self.queue = queue
        self.reached = 0
        self._files = files
        self._read_only = read_only
        self._limit = _ALL
        self._held = no_units()

    @property
    def first(self) -> int:
        """Always 0, because only the log determines the first unit that counts."""
        return 0

    @property
    def end(self) -> int:
        """The queue offset after the last unit."""
        return self.bounds(0)[1]

    def load(self, *, thorough: bool) -> bool:
        """Read the end of the files; always returns ``True``, as no damage is detected here.

        :param thorough: check all units, and remove them from the first invalid one on
        """
        if thorough and not self._read_only:
            self._files.cut_at_invalid()
        self.reached = self._files.end_physical
        return True

    def is_empty(self) -> bool:
        """Whether there is no unit."""
        return not self.reached

    def bounds(self, minimum: int) -> tuple[int, int]:
        """The first queue offset of a record at or after ``minimum``, and the end."""
        first, end = self._files.bounds(minimum)
        if not self._read_only:
            return first, end
        units = self.read(first, _ALL)
        there = units[units.offsets >= minimum]
        if len(units):
            end = int(units.queue_offsets[-1]) + int(units.counts[-1])
        return (int(there.queue_offsets[0]) if len(there) else end), end

    def plain(self, _minimum: int, _offset: int | None) -> None:
        """Always ``None``, as a record holds several messages; see :meth:`.SimpleQueue.plain`."""

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
        """Physical offset of the record of the first unit; ``None`` without a unit."""
        first = self.read(self.bounds(0)[0], 1)
        return int(first.offsets[0]) if len(first) else None

    def append(self, units: Units, store_times_ms: NDArray[np.int64]) -> None:
        """Append units in the order of the log; existing ones are skipped.

        :param store_times_ms: ``int64``, of the same length
        """
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
        """Remove the units of records at or after a physical offset."""
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

    def exclude_before(self, minimum: int) -> bool:
        """Stop reading files with only old records; see :meth:`.BatchQueueFiles.exclude_before`."""
        return not self._read_only and self._files.exclude_before(minimum)

    def remove_front(self) -> int:
        """Remove the files that :meth:`exclude_before` chose; returns their number."""
        return self._files.remove_front()

    def remove(self) -> None:
        """Remove all units."""
        self.truncate(0)

    def mark_unsynced(self, durable_end: int) -> None:  # noqa: ARG002  # the signature of every queue
        """Sync all files at the next flush: the process that wrote them may have died before it."""
        self._files.mark_unsynced()

    def flush(self, least_pages: int) -> None:
        """Sync the files in which at least ``least_pages`` pages changed."""
        self._files.flush(least_pages)

    def close(self) -> None:
        """Close the files."""
        self._files.close()


def _joined(one: Units, other: Units) -> Units:
    columns = zip(
        attrs.astuple(one, recurse=False), attrs.astuple(other, recurse=False), strict=True
    )
    return Units(*(np.concatenate(pair) for pair in columns))
