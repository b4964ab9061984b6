"""One batch queue: units of 46 bytes, each for a record of several messages.

The queue offset therefore does not give the position of a unit; a binary search finds it. Units are
in files, and for a reader also in memory after those. As in RocketMQ's ``BatchConsumeQueue``, a
record that does not follow the last one in the log gets no unit; any other does, whatever queue
offset it has.

A unit is ``offset i64 | size i32 | tagsCode i64 | storeTime i64 | baseOffset i64 | batchSize i16 |
compactedOffset i32 | reserved i32``, big-endian. Source: RocketMQ's ``BatchConsumeQueue`` and
``CommitLog.setBatchSizeIfNeeded``; core/docs/reference/format/batchconsumequeue.md.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

import attrs

from lakelog.format.queue_offsets import Flags, Longs, Queue, Units
from lakelog.format.record_batch import RecordBatch
from lakelog.lazy import np
from lakelog_queues.files.folders import SizedFiles
from lakelog_queues.units.simpleunits import RawUnits, no_units
from lakelog_queues.units.tags import tags_codes

UNIT: Final = np.dtype(
    [
        ("offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_time", ">i8"),
        ("base_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
UNIT_BYTES: Final = UNIT.itemsize
NONE: Final = np.zeros(0, UNIT)
MOST_IN_A_BATCH: Final = 0x7FFF
_NOT_COMPACTED: Final = -1
_INNER_NUM: Final = "INNER_NUM"
_INNER_BASE: Final = "INNER_BASE"
_NUMBER: Final = re.compile(r"\+?[0-9]{1,18}", re.ASCII)
_ALL: Final = (1 << 63) - 1
_SCANNED_AT_ONCE: Final = 1 << 14
_FIRST_LOOK: Final = 64
_CHECKED_FILES: Final = 3
"""Number of files at the end that are checked at open, as in RocketMQ's recovery."""


def inner_batches(batch: RecordBatch) -> tuple[Units, Longs]:
    """Units and store times (``int64``, ms since 1970) of the records of batch topics.

    Two properties of a record give the queue offset of its first message and the number of its
    messages: ``INNER_BASE`` and ``INNER_NUM``. A record in which either is missing or no valid
    number gets no unit, whatever its system flags are.
    """
    found = [
        (at, int(base), int(number))
        for at, each in enumerate(batch.properties)
        for base, number in [(each.get(_INNER_BASE, ""), each.get(_INNER_NUM, ""))]
        if _NUMBER.fullmatch(base) and _NUMBER.fullmatch(number)
    ]
    at, bases, counts = np.array(found, np.int64).reshape(-1, 3).T
    fits = (counts > 0) & (counts <= MOST_IN_A_BATCH)
    at = at[fits]
    units = Units(
        bases[fits],
        batch.physical_offsets[at],
        batch.sizes[at],
        tags_codes(batch)[at],
        counts[fits].astype(np.int32),
    )
    return units, batch.store_timestamps_ms[at]


def pack(units: Units, store_times_ms: Longs) -> RawUnits:
    """Units in file format."""
    raw = np.zeros(len(units), UNIT)
    raw["offset"], raw["size"], raw["tags_code"] = units.offsets, units.sizes, units.tags_codes
    raw["store_time"], raw["base_offset"] = store_times_ms, units.queue_offsets
    raw["batch_size"], raw["compacted_offset"] = units.counts, _NOT_COMPACTED
    return raw


def unpack(raw: RawUnits) -> Units:
    """Units from file format."""
    return Units(
        raw["base_offset"].astype(np.int64),
        raw["offset"].astype(np.int64),
        raw["size"].astype(np.int32),
        raw["tags_code"].astype(np.int64),
        raw["batch_size"].astype(np.int32),
    )


def valid_length(raw: RawUnits) -> int:
    """The number of units before the first invalid one, at which RocketMQ stops as well."""
    good = (raw["offset"] >= 0) & (raw["size"] > 0)
    good &= (raw["base_offset"] >= 0) & (raw["batch_size"] > 0)
    return len(raw) if good.all() else int(good.argmin())


def readable(units: Units) -> Flags:
    """For each unit, whether it is valid; :func:`valid_length` stops at any other."""
    good = (units.offsets >= 0) & (units.sizes > 0) & (units.queue_offsets >= 0)
    good &= (units.counts > 0) & (units.counts <= MOST_IN_A_BATCH)
    return np.asarray(good, np.bool_)


class BatchQueue:
    """A queue with units of 46 bytes; one thread changes it, any thread reads.

    :ivar queue: topic and queue id
    :ivar reached: physical end offset of the last record that has a unit; 0 without a unit
    """

    kind: Final = "BatchCQ"

    def __init__(self, queue: Queue, files: BatchQueueFiles) -> None:
        self.queue = queue
        self.reached = 0
        self._files = files
        self._read_only = files.read_only
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

    def follow(self, _units: memoryview, _first: int) -> bool:
        """Always ``False``: units of simple queues do not fit; see :meth:`.SimpleQueue.follow`."""
        return False

    def read(self, first: int, count: int) -> Units:
        """At most ``count`` units, from the one that holds queue offset ``first`` on."""
        units = self._files.units(first, count)
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

    def append(self, units: Units, store_times_ms: Longs) -> None:
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
        return self._files.remove_excluded()

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


class BatchQueueFiles(SizedFiles):
    """The files in one directory; one thread appends, any thread reads.

    The length of every file is a multiple of 46.
    """

    _there: tuple[int, int]
    """Numbers of the first unit and of the next one, replaced as a pair."""

    @property
    def end_physical(self) -> int:
        """Physical end offset of the last unit's record; 0 if there is no unit."""
        last = self._last()
        return int(last["offset"][0]) + int(last["size"][0]) if len(last) else 0

    @property
    def last_physical(self) -> int:
        """Physical offset of the last unit's record; -1 if there is no unit.

        RocketMQ uses this value as the maximum physical offset of a batch queue.
        """
        last = self._last()
        return int(last["offset"][0]) if len(last) else -1

    def before(self, offset: int) -> int:
        """Physical offset of the last unit's record before ``offset``; 0 if there is none."""
        first, end = self._now()
        at = self._search("offset", offset, first, end)
        found = self._raw(at - 1, at) if at > first else NONE
        return int(found["offset"][0]) if len(found) else 0

    def append(self, units: Units, store_times_ms: Longs) -> None:
        """Write units in the order of the log; one write for each file.

        Skipped are units of records that do not follow the record of the last unit, and units at
        which a reader would stop (no message, or more than 32,767; size 0; offsets below 0).

        :param store_times_ms: ``int64``, of the same length
        """
        # Each unit is compared with the highest offset before it, in the files or in `units`.
        before = np.concatenate([[self.last_physical], units.offsets[:-1]]).astype(np.int64)
        new = readable(units) & (units.offsets > np.maximum.accumulate(before))
        raw = pack(units[new], store_times_ms[new])
        while len(raw):
            first, end = self._there
            count = self._in_file - end % self._in_file
            self.write(end * UNIT_BYTES, raw[:count].tobytes())
            self._there = (first, end + len(raw[:count]))
            raw = raw[count:]

    def units(self, first_queue_offset: int, count: int) -> Units:
        """At most ``count`` units, from the one that holds ``first_queue_offset`` on.

        Empty if it is out of bounds. From a queue offset in a gap, the next unit is the first.
        """
        first, end = self._now()
        at = self._number_of(first_queue_offset, first, end)
        return unpack(self._raw(at, min(end, at + max(0, count)) if at >= first else at))

    def bounds(self, minimum: int) -> tuple[int, int]:
        """The first existing queue offset and the next one to be written; 0 and 0 without units.

        :param minimum: physical offset of the first byte in the log; units of earlier records do
            not count
        """
        first, end = self._now()
        last = self._raw(end - 1, end) if end > first else NONE
        if not len(last):
            return 0, 0
        maximum = int(last["base_offset"][0]) + int(last["batch_size"][0])
        at = self._search("offset", minimum, first, end)
        found = self._raw(at, at + 1) if at < end else NONE
        return (int(found["base_offset"][0]) if len(found) else maximum), maximum

    def truncate(self, end_offset: int) -> None:
        """Durably remove the units of records at or after the physical offset ``end_offset``."""
        first, end = self._there
        kept = self._search("offset", end_offset, first, end)
        if kept < end:
            self._there = (first, kept) if kept > first else (0, 0)
            self.cut(kept * UNIT_BYTES)

    def exclude_before(self, minimum: int) -> bool:
        """Stop reading files whose records are all before physical offset ``minimum``.

        :meth:`remove_excluded` removes them. The last file is kept. Returns whether there are any.
        """
        first, end = self._there
        for base in self.bases[:-1]:
            behind = base // UNIT_BYTES + self._in_file
            if self._field("offset")(behind - 1) >= minimum:
                break
            first = max(first, behind)
        self._there = (first, end)
        return bool(self.bases) and self.bases[0] // UNIT_BYTES < first

    def remove_excluded(self) -> int:
        """Remove the files that :meth:`exclude_before` chose; returns their number."""
        return self.remove_front(self._there[0] * UNIT_BYTES)

    def cut_at_invalid(self) -> None:
        """Remove all units from the first invalid one on; checks every unit.

        Physical offsets must ascend.
        """
        first, end = self._there
        at, reached = first, -1
        while at < end:
            raw = self._raw(at, min(end, at + _SCANNED_AT_ONCE))
            whole = raw[: valid_length(raw)]
            offsets = whole["offset"].astype(np.int64)
            strange = np.diff(offsets, prepend=reached) <= 0
            if strange.any() or len(whole) < min(end - at, _SCANNED_AT_ONCE):
                at += max(0, int(strange.argmax()) - 1) if strange.any() else len(whole)
                self._there = (first, at) if at > first else (0, 0)
                self.cut(at * UNIT_BYTES)
                return
            at, reached = at + len(whole), int(offsets[-1])

    def load(self) -> None:
        """List the files, and find the bounds; an owner removes what is behind the last unit."""
        super().load()
        self._in_file = self.size_bytes // UNIT_BYTES
        there = (0, 0)
        if self.bases:
            start = self.bases[-_CHECKED_FILES:][0] // UNIT_BYTES
            there = (self.bases[0] // UNIT_BYTES, self._scan(start, _SCANNED_AT_ONCE))
            if not self.read_only:
                self.cut(there[1] * UNIT_BYTES)
                there = there if self.bases else (0, 0)
        self._there = there

    def _scan(self, at: int, look: int) -> int:
        """Number of the first unit at or after ``at`` that is not valid."""
        while True:
            end = min(at + look, at + self._in_file - at % self._in_file)
            found = valid_length(self._raw(at, end))
            at += found
            if not found or at < end:
                return at
            look = _SCANNED_AT_ONCE

    def _now(self) -> tuple[int, int]:
        """Numbers of the first unit and of the next one; a reader updates them from the files."""
        if self.read_only:
            first, end = self._there
            if end > first and not len(self._raw(first, first + 1)):
                self.load()  # the owner deleted files at the front
            elif end > first:
                self._there = (first, self._scan(end, _FIRST_LOOK))
            else:
                self.load()
        return self._there

    def _last(self) -> RawUnits:
        first, end = self._now()
        return self._raw(end - 1, end) if end > first else NONE

    def _raw(self, begin: int, end: int) -> RawUnits:
        """Units ``begin`` to ``end`` by their numbers; fewer if the files end before."""
        parts = []
        while begin < end:
            count = min(end - begin, self._in_file - begin % self._in_file)
            data = self.read(begin * UNIT_BYTES, count * UNIT_BYTES)
            parts.append(np.frombuffer(data, UNIT, len(data) // UNIT_BYTES))
            if len(parts[-1]) < count:
                break
            begin += count
        return parts[0] if len(parts) == 1 else np.concatenate([NONE, *parts])

    def _search(self, field: str, value: int, first: int, end: int) -> int:
        """Number of the first unit whose ``field`` is ``value`` or more; the field must ascend."""
        return bisect_left(range(end), value, first, end, key=self._field(field))

    def _field(self, field: str) -> Callable[[int], int]:
        def of(number: int) -> int:
            raw = self._raw(number, number + 1)
            return int(raw[field][0]) if len(raw) else -1  # deleted from the front meanwhile

        return of

    def _number_of(self, queue_offset: int, first: int, end: int) -> int:
        """Number of the unit that holds a queue offset, or else of the next one.

        ``end`` if there is neither, or if the queue offset is before the first unit.
        """
        at = self._search("base_offset", queue_offset, first, end)
        before = self._raw(at - 1, at) if at > first else NONE
        if not len(before):
            exact = at < end and self._field("base_offset")(at) == queue_offset
            return at if exact else end
        behind = int(before["base_offset"][0]) + int(before["batch_size"][0])
        return at - 1 if queue_offset < behind else at
