"""One simple queue: units in files, and for a reader also units in memory after those.

One thread changes it, any thread reads. A unit is visible once it is written. A reader keeps units
in memory until the owner has written them to files. Units of records are found by their physical
offset with a binary search.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import attrs

from lakelog.format.queue_offsets import Flags, Longs, Queue, Units
from lakelog.lazy import np
from lakelog_queues.files.folders import UnitFiles
from lakelog_queues.files.openfiles import PlainUnits, UnitLocation
from lakelog_queues.files.replaced import placed
from lakelog_queues.units.simpleunits import (
    UNIT_BYTES,
    OneUnit,
    alike,
    columns,
    each_unit,
    filler,
    fillers,
    is_filler,
    pack,
    unit_at,
    unpack,
)
from lakelog_queues.units.tags import is_address

if TYPE_CHECKING:
    from lakelog_queues.files.ext import ExtFiles
    from lakelog_queues.files.replaced import RepairReplacements

Held: TypeAlias = tuple[int, memoryview]
Read: TypeAlias = Callable[[int, int], bytes]
"""Returns units in file format, by the number of the first one and their count."""
Fills: TypeAlias = "Callable[[bytes], Flags | None]"
"""Determines which units are fillers; ``None`` if none is."""
Numbered: TypeAlias = tuple[int, OneUnit]
"""The number of a unit, and the unit."""
_FEW: Final = 32
"""Largest number of units that are read and compared at once, instead of a further bisection."""
_MANY: Final = 4096
_LOG: Final = logging.getLogger(__name__)
_LOOKED_UP_AT_ONCE: Final = 4096


@attrs.define(eq=False)
class SimpleQueue:
    """A queue with units of 20 bytes.

    :ivar queue: topic and queue id
    :ivar first: queue offset of the first unit, fillers included
    :ivar end: queue offset after the last unit
    :ivar reached: physical end offset of the last record that has a unit; 0 without a unit

    :param ext: the extension files, if tags codes may be in them
    :param ext_writes: whether new tags codes are written there
    :param memory: keeps the new units of a reader
    :param replaced: the records of repairs, to which units may lead; ``None`` for their own queues
    """

    kind: ClassVar = "SimpleCQ"
    queue: Queue
    _files: UnitFiles
    _ext: ExtFiles | None
    _ext_writes: bool
    _memory: Overlay | None
    _replaced: RepairReplacements | None
    first: int = 0
    end: int = 0
    reached: int = 0
    _minimum: tuple[int, int, int] = (-1, -1, 0)

    def load(self, *, thorough: bool) -> bool:
        """Read the bounds from the files; returns whether no file is missing between them.

        :param thorough: check all files, and remove bytes that a crash left after the last unit
        """
        self._files.load()
        sound, starts = self._files.is_gapless, self._files.starts
        self.first = starts[0] if starts else 0
        self.end = self._files.end(thorough=thorough)
        if self.end > self.first and fillers(self._files.units(self.end - 1, 1)) is not None:
            last = last_real(self._files.units, self.first, self.end)
            if last is not None:
                self.end = last[0] + 1  # the next append adds fillers again
        if self._memory is not None:
            self._memory = Overlay(self.end)
        elif thorough or not sound:
            self._files.cut(self.end * UNIT_BYTES)
        self._set_reached()
        if thorough and self._ext is not None:
            self._cut_at_lost_code(self._ext)
        return sound

    def is_empty(self) -> bool:
        """Whether it has no unit, and no file whose name would determine its end."""
        return not self.end and (self._memory is not None or not self._files.bases)

    # --- reading ---

    def bounds(self, minimum: int) -> tuple[int, int]:
        """The first queue offset of a record at or after ``minimum``, and the end.

        :param minimum: physical offset of the first byte of the log
        """
        # The result of the search is kept for the next call. It stays valid while the log has the
        # same first byte, and the unit found is still part of the queue.
        at, first, end = self._minimum
        if at != minimum and self._memory is not None:
            self._look_for_front()
        if at != minimum or first < self.first or end > self.end or first >= end:
            first, end = self._find(minimum), self.end
            self._minimum = (minimum, first, end)
        return min(first, self.end), self.end

    def plain(self, minimum: int, offset: int | None) -> PlainUnits | None:
        """The result of :meth:`bounds`, and the place of a unit, for compiled code.

        :param offset: queue offset of the unit; ``None`` is the first one
        :returns: ``None`` if :meth:`bounds` and :meth:`read` must be used instead
        """
        at, first, known = self._minimum
        if at != minimum or not self.first <= first < known <= self.end:
            self.bounds(minimum)
            at, first, known = self._minimum
        end = self.end
        if at != minimum or not self.first <= first < known <= end:
            return None
        if self._ext or (self._replaced and self._replaced.queues):
            return None
        offset = first if offset is None else offset
        if not first <= offset < end:
            return None
        memory = self._memory
        held = self._files.held(offset) if memory is None else memory.place(offset, self._files)
        return first, end, *held

    def _look_for_front(self) -> None:
        """List the files again if the owner has deleted some at the front."""
        if self.first < self.end and not len(self._raw(self.first, 1)):
            self._files.load()
            self.first = max([self.first, *self._files.starts[:1]])

    def read(self, first: int, count: int) -> Units:
        """At most ``count`` units from queue offset ``first`` on, with their tags codes.

        Fillers and units that lead to a repair's record are omitted. If there are no others in the
        range, the units after them are returned.
        """
        data = self._raw(first, count)
        units = unpack(columns(data), first)
        fills = self._fills(data)
        if fills is not None:
            units = units[np.flatnonzero(~fills)] if not fills.all() else self._behind(first, count)
        if self._ext is None or not len(units):
            return units
        kept = is_address(units.tags_codes)
        if kept.any():
            units.tags_codes[kept] = self._ext.resolve(units.tags_codes[kept])[0]
        return units

    def oldest(self) -> int | None:
        """Physical offset of the record of the first unit; ``None`` without a unit."""
        found = first_real(self._raw, self.first, self.end)
        return None if found is None else found[1].offset

    def _behind(self, first: int, count: int) -> Units:
        """At most ``count`` units after the fillers that start at ``first``."""
        found = first_real(self._raw, first, self.end, self._fills)
        if found is None or count <= 0:
            return unpack(columns(b""), first)
        data = self._raw(found[0], count)
        units, fills = unpack(columns(data), found[0]), self._fills(data)
        return units if fills is None else units[np.flatnonzero(~fills)]

    def _fills(self, data: bytes) -> Flags | None:
        """For each unit, whether its record is lost; ``None`` if none is."""
        replacements = self._replaced.now() if self._replaced is not None else None
        if not replacements:
            return fillers(data)
        raw = columns(data)
        fills = is_filler(raw) | replacements.are_pointed_to(raw)
        return fills if fills.any() else None

    def _raw(self, first: int, count: int) -> bytes:
        """Units from files and memory, in file format, within the bounds of the queue."""
        stop = min(first + count, self.end)
        if first < self.first or first >= stop:
            return b""
        if self._memory is None:
            return self._files.units(first, stop - first)
        start, held = self._memory.held
        if first >= start:
            return bytes(held[(first - start) * UNIT_BYTES : (stop - start) * UNIT_BYTES])
        written = self._files.units(first, min(stop, start) - first)
        return written + held[: max(0, stop - start) * UNIT_BYTES]

    def before(self, offset: int) -> int:
        """Physical offset of the last record before ``offset`` that has a unit; 0 without one."""
        last = last_real(self._raw, self.first, self._find(offset))
        return 0 if last is None else last[1].offset

    def _find(self, offset: int) -> int:
        """The number of the first unit of a record at or after a physical offset."""
        return first_behind(self._raw, self.first, self.end, offset)

    # --- appending ---

    def append(self, units: Units, store_times_ms: Longs) -> None:
        """Append units in the order of the log; existing ones are compared and skipped.

        :param store_times_ms: ``int64``, of the same length, for extension files
        """
        ends = units.offsets + units.sizes
        if ends[0] <= self.reached:
            self._check(units[ends <= self.reached])
            new = ends > self.reached
            units, store_times_ms = units[new], store_times_ms[new]
        if len(units):
            self._take(units, store_times_ms)

    def follow(self, units: memoryview, first: int) -> bool:
        """Append units in file format, with consecutive queue offsets from ``first`` on.

        Returns ``False``, and does nothing, unless the queue ends at ``first``, or has all of them.
        """
        end = unit_at(units, -1).end
        if end <= self.reached:
            return bool(self._raw(first, len(units) // UNIT_BYTES) == units)
        if self._ext_writes or unit_at(units, 0).end <= self.reached:
            return False
        begins = not self.reached and first >= 0 and first == self._files.base(first)
        if not begins and not (self.reached and first == self.end):
            return False
        if begins:
            self._begin(first)
        self._store(units, end)
        return True

    def _take(self, units: Units, store_times_ms: Longs) -> None:
        before = filler(0 if self.reached else self._begin(int(units.queue_offsets[0])))
        end = self.end + len(before)
        reached = self.reached or int(units.offsets[0])
        is_behind = units.queue_offsets[0] > end
        if is_behind and self._fills(self._raw(self.end - 1, 1)) is not None:
            # After a crash, the queue may end with some of the units that lead to a repair's
            # record. Then the missing records are counted from the last real record.
            reached = end_of_last(self._raw, self.first, self.end, self._fills)
        places = placed(self.queue, units, end, reached)
        raw = pack(units)
        if self._ext is not None and self._ext_writes:
            raw["tags_code"] = self._ext.append(units.tags_codes, store_times_ms)
        if places is not None and places[-1] >= end + len(raw):
            there, raw = raw, filler(int(places[-1]) + 1 - end)
            raw[places - end] = there
            if self._replaced is not None and (replacements := self._replaced.now()):
                replacements.point(raw, places - end, units, reached)
        if len(before) and not self.first and self._replaced is not None:
            self._replaced.point_front(before, int(units.offsets[0]))
        self._store(before.tobytes() + raw.tobytes(), int(units.offsets[-1]) + int(units.sizes[-1]))

    def _begin(self, queue_offset: int) -> int:
        """Start an empty queue at ``queue_offset``; returns the fillers up to it in its file."""
        if self._memory is not None:
            self._memory = Overlay(queue_offset)
            self.first = self.end = queue_offset
            return 0
        base = self._files.base(queue_offset)
        if self._files.starts != [base]:
            self._files.cut(0)
        self.first = self.end = base
        return queue_offset - base

    def _store(self, units: bytes | memoryview, reached: int) -> None:
        if self._memory is None:
            self._files.write_units(self.end, units)
        else:
            # First: units of records before `reached` are checked, and made again, if an exception
            # of a signal handler comes in between.
            self.reached = reached
            self._memory.append(units)
        self.end += len(units) // UNIT_BYTES
        self.reached = reached
        if self._memory is not None:
            self._memory.drop_written(self._files)

    # --- records that are dispatched again ---

    def _check(self, again: Units) -> None:
        """Check that units of records dispatched again exist; else cut the queue before them.

        The units that are cut are appended again, as the log is dispatched in order to its end.
        """
        again = self._of_this_life(again)
        if not len(again) or self._stand_at(again.queue_offsets, again):
            return
        low = self._find(int(again.offsets[0]))
        span = columns(self._raw(low, self._find(int(again.offsets[-1]) + 1) - low))
        real = np.flatnonzero(~is_filler(span))
        places = np.searchsorted(span["offset"][real].astype(np.int64), again.offsets)
        near = span[real[np.minimum(places, len(real) - 1)]] if len(real) else filler(len(again))
        there = alike(near, pack(again))
        if not there.all():
            missing = int(there.argmin())
            _LOG.warning(
                "queue %s/%d has no unit for the record at %d; it is rebuilt from there on",
                *self.queue,
                int(again.offsets[missing]),
            )
            before = int(places[missing])
            self._cut(low + (int(real[before - 1]) + 1 if before else 0))

    def _of_this_life(self, again: Units) -> Units:
        """The units without those of records before the record at queue offset 0.

        Such records are older than a deletion of the topic by RocketMQ, which keeps no tombstone.
        """
        first = b"" if self.first else self._raw(0, 1)
        if not first or self._fills(first) is not None:
            return again
        return again[again.offsets >= unit_at(first, 0).offset]

    def _stand_at(self, queue_offsets: Longs, again: Units) -> bool:
        low, high = int(queue_offsets.min()), int(queue_offsets.max()) + 1
        if low < self.first or high > self.end or high - low > 8 * len(again) + 64:
            return False
        there = columns(self._raw(low, high - low))
        same = len(there) == high - low and alike(there[queue_offsets - low], pack(again)).all()
        return bool(same)

    # --- forgetting ---

    def exclude_before(self, minimum: int) -> bool:
        """Stop reading files whose records are all before physical offset ``minimum``.

        :meth:`remove_front` removes them. The last file is kept. Returns whether there are any.
        """
        bases = self._files.starts
        if self._memory is not None or not bases:
            return False
        for base, behind in pairwise(bases):
            last = last_real(self._raw, base, behind)
            if last is not None and last[1].offset >= minimum:
                break
            self.first = max(self.first, behind)
        self._minimum = (-1, -1, 0)
        return bases[0] < self.first

    def remove_front(self) -> int:
        """Remove the files that :meth:`exclude_before` chose, and their extension files.

        Returns the number of removed files.
        """
        removed = self._files.remove_front(self.first * UNIT_BYTES)
        if self._ext is None or not removed:
            return removed
        codes = self._codes(self.first, _LOOKED_UP_AT_ONCE)
        kept = codes[is_address(codes)]
        return removed + (self._ext.truncate_before(int(kept.min())) if len(kept) else 0)

    def truncate(self, end_offset: int) -> None:
        """Remove the units of records at or after a physical offset."""
        if self.reached > end_offset:
            self._cut(self._find(end_offset))

    def _cut(self, end: int) -> None:
        self._minimum = (-1, -1, 0)
        last = last_real(self._raw, self.first, min(end, self.end))
        end = 0 if last is None else last[0] + 1
        self.end = min(self.end, end)
        if self._memory is not None:
            self._memory.cut(end)
        else:
            self._files.cut(end * UNIT_BYTES)
        self.first = min(self.first, end)
        self._set_reached()
        if self._ext is not None and self._memory is None:
            self._cut_ext(self._ext)

    def _cut_at_lost_code(self, ext: ExtFiles) -> None:
        """Remove units from the first one whose tags code is lost; they are rebuilt."""
        for at in range(self.first, self.end, _LOOKED_UP_AT_ONCE):
            codes = self._codes(at, _LOOKED_UP_AT_ONCE)
            if (lost := ext.first_lost(codes, self.queue)) is not None:
                self._cut(at + lost)
                return

    def _codes(self, first: int, count: int) -> Longs:
        return columns(self._raw(first, count))["tags_code"].astype(np.int64)

    def _cut_ext(self, ext: ExtFiles) -> None:
        last = self._codes(self.end - 1, 1)
        if not len(last) or is_address(last).all():
            ext.truncate_after(int(last[0]) if len(last) else None)

    def _set_reached(self) -> None:
        self.reached = end_of_last(self._raw, self.end - 1, self.end)

    def remove(self) -> None:
        """Remove all units and files."""
        self._cut(0)

    def mark_unsynced(self, durable_end: int) -> None:
        """Sync the files at the next flush: the process that wrote them may have died before it.

        :param durable_end: queue offset up to which units are known to be durable
        """
        self._files.mark_unsynced(durable_end * UNIT_BYTES)
        if self._ext is not None:
            self._ext.mark_unsynced()

    def flush(self, least_pages: int) -> None:
        """Sync the extension files; unit files of all queues are synced together."""
        if self._ext is not None:
            self._ext.flush(least_pages)

    def close(self) -> None:
        """Close the files."""
        self._files.close()
        if self._ext is not None:
            self._ext.close()


class Overlay:
    """The last units of a queue, in file format; one thread changes them, any thread reads.

    :ivar held: queue offset of the first unit in memory, and the units; replaced as a pair
    """

    __slots__ = ("_room", "held")

    def __init__(self, start: int) -> None:
        self._room = bytearray()
        self.held: Held = (start, memoryview(self._room))

    def append(self, units: bytes | memoryview) -> None:
        """Add units."""
        start, before = self.held
        length = len(before) + len(units)
        if length > len(self._room):
            room = bytearray(max(length, 2 * len(self._room)))
            room[: len(before)] = before
            self._room = room
        self._room[len(before) : length] = units
        self.held = (start, memoryview(self._room)[:length])

    def cut(self, end: int) -> None:
        """Remove units from queue offset ``end`` on; if ``end`` is lower, it becomes the start."""
        start, units = self.held
        self._hold(min(start, end), units[: max(0, end - start) * UNIT_BYTES])

    def drop_written(self, files: UnitFiles) -> None:
        """Remove the leading units that the owner has written to files meanwhile."""
        start, held = self.held
        written = files.units(start, len(held) // UNIT_BYTES)
        count = _count_alike(written, held[: len(written)])
        if count:
            self._hold(start + count, held[count * UNIT_BYTES :])

    def place(self, offset: int, files: UnitFiles) -> UnitLocation:
        """The place of the unit of a queue offset, in memory or in the files."""
        start, held = self.held
        if offset >= start:
            end = start + len(held) // UNIT_BYTES
            return held[(offset - start) * UNIT_BYTES :], 0, end - offset
        source, position, room = files.held(offset)
        return source, position, min(room, start - offset)

    def _hold(self, start: int, units: bytes | memoryview) -> None:
        self._room = bytearray(units)
        self.held = (start, memoryview(self._room))


def _count_alike(written: bytes, held: memoryview) -> int:
    """The number of leading units that refer to the same records; their tags codes may differ."""
    if written == held:
        return len(written) // UNIT_BYTES
    same = alike(columns(written), columns(held))
    return len(same) if same.all() else int(same.argmin())


def first_behind(read: Read, low: int, high: int, offset: int) -> int:
    """The number of the first unit of a record at or after physical ``offset``, or ``high``.

    Files may be deleted at the front between two reads: what cannot be read lies before the result.

    :param low: first unit of the range; physical offsets must ascend in it, except for fillers
    :param high: end of the range
    """
    while high - low > _FEW:
        middle = (low + high) // 2
        last = last_real(read, low, middle + 1)
        if last is None or last[1].offset < offset:
            low = middle + 1
        else:
            high = last[0]
    data = read(low, high - low)
    while low < high and not data:
        low += 1
        data = read(low, high - low)
    units, real = each_unit(data), _real(data, fillers)
    return next((low + at for at in real if units[at].offset >= offset), high)


def last_real(read: Read, low: int, high: int, fills: Fills = fillers) -> Numbered | None:
    """The last unit from ``low`` to ``high`` that is no filler, and its number, or ``None``."""
    look = 1
    while high > low:
        start = max(low, high - look)
        data = read(start, high - start)
        real = _real(data, fills)
        if real:
            return start + real[-1], unit_at(data, real[-1])
        high, look = start, _MANY
    return None


def first_real(read: Read, low: int, high: int, fills: Fills = fillers) -> Numbered | None:
    """The first unit from ``low`` to ``high`` that is no filler, and its number, or ``None``."""
    while low < high:
        data = read(low, min(_MANY, high - low))
        real = _real(data, fills)
        if real:
            return low + real[0], unit_at(data, real[0])
        if not data:
            return None
        low += len(data) // UNIT_BYTES
    return None


def _real(data: bytes, fills: Fills) -> Sequence[int]:
    """The indices of the units that are no fillers."""
    filled = fills(data)
    return range(len(data) // UNIT_BYTES) if filled is None else np.flatnonzero(~filled).tolist()


def end_of_last(read: Read, low: int, high: int, fills: Fills = fillers) -> int:
    """Physical end offset of the record of the last unit that is no filler; 0 without one."""
    last = last_real(read, low, high, fills)
    return 0 if last is None else last[1].end
