"""Checks all queues of a store against its log, in one pass, and changes nothing.

For every record that must have a unit, the check compares the unit's place, physical offset, size
and tags code; in batch queues also store time, first queue offset and count. It also finds units
without a record, and wrong names and lengths of files. It needs a few hundred bytes of memory for
each queue, and one run of records.

The files of a queue are read past any damage in them. Units are in the order of the log. A correct
run costs one read and one comparison. After a difference, units and records are aligned again by
the physical offsets of the records. Only a few numbers are kept between runs.

Not checked are units of records before the first byte of the log, and in ``consumequeue_ext`` the
store times, bitmaps, and units to which no queue points.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from lakelog.errors import CorruptQueue
from lakelog.files.filesystem import File, FileSystem, unreadable
from lakelog.files.segment_files import SegmentFile, segment_files
from lakelog.format import layout
from lakelog.format.properties import LIGHT_QUEUE_PREFIX, REPAIRED_TOPIC
from lakelog.format.queue_offsets import Flags, Longs, Queue, Units
from lakelog.format.record_batch import RecordBatch
from lakelog.hooks.dispatching import DamagedRanges, Problem
from lakelog.lazy import np
from lakelog_queues.dispatching.grouping import Grouping, QueueUnits
from lakelog_queues.dispatching.making import present_queues, queues_in
from lakelog_queues.files import batchqueue
from lakelog_queues.files.ext import ExtFiles
from lakelog_queues.files.openfiles import OpenFiles
from lakelog_queues.files.replaced import Replacements, is_explained
from lakelog_queues.files.simplequeue import first_behind
from lakelog_queues.plugin import ConsumeQueueSettings
from lakelog_queues.units import simpleunits
from lakelog_queues.units.tags import is_address

_READ_BYTES: Final = 1 << 20
WRONG_LENGTH: Final = "the file has a wrong length"
WRONG_NAME: Final = "no file can start there, and its queue is not compared"
GAP: Final = "files are missing before this one"
MISSING: Final = "units are missing"
OF_NO_RECORD: Final = "the unit does not belong to a whole record of this queue"
DIFFERS: Final = "the unit differs from its record"
MISPLACED: Final = "the record has another queue offset than its unit"
UNLED: Final = "the unit of a lost record does not lead to the record that a repair put there"
_LOOKED_THROUGH: Final = 4096
_CHUNK: Final = 256
Resolve: TypeAlias = Callable[[simpleunits.RawUnits], simpleunits.RawUnits]
"""Replaces addresses in ``consumequeue_ext`` by the tags codes there."""
BROKEN: Final = "the files of tags codes do not fit together"
_SIMPLE: Final[tuple[str, ...]] = ("size", "tags_code")
_BATCH: Final = (*_SIMPLE, "store_time", "base_offset", "batch_size", "compacted_offset")
_MOST_OPEN: Final = 64
_LOOKS: Final = 3
"""Number of listings of a folder, as a listing may miss files that are created meanwhile."""
_PATIENCE_SECONDS: Final = 1.0
_LOOK_AGAIN_SECONDS: Final = 0.02


class CheckedFiles:
    """Units by their number, in files of equal size; changes nothing.

    :ivar first: number of the first unit of the first file
    :ivar end: number after the last nonzero unit, as of the creation or the last :meth:`look`
    :ivar fits: whether the names of all files are multiples of the file size
    """

    def __init__(
        self, files: FileSystem, opened: OpenFiles, directory: Path, unit: np.dtype[Any], size: int
    ) -> None:
        self.directory = directory
        self._files = files
        self._opened = opened
        self._unit = unit
        self._size = size
        self._in_file = size // unit.itemsize
        self.look()

    def look(self) -> None:
        """List the files again, and find the end again."""
        listing = self._files.list(self.directory)
        self._there = segment_files(self.directory, listing)
        self.fits = all(not each.start_offset % self._size for each in self._there)
        starts = [each.start_offset for each in self._there]
        self.first = starts[0] // self._unit.itemsize if starts else 0
        self.end = self._find_end() if self.fits else self.first

    def problems(self) -> Iterator[Problem]:
        """Problems with names and lengths; an empty file is just being created, so it is none."""
        before = None
        for each in self._there:
            if each.length not in (0, self._size):
                yield Problem(
                    each.path, each.length, WRONG_LENGTH, f"{self._size} bytes", str(each.length)
                )
            if each.start_offset % self._size:
                expected = f"a multiple of {self._size}"
                yield Problem(each.path, 0, WRONG_NAME, expected, str(each.start_offset))
            elif before is not None and each.start_offset != before + self._size:
                expected = layout.segment_name(before + self._size)
                yield Problem(each.path, 0, GAP, f"one named {expected}")
            before = each.start_offset

    def read(self, first: int, end: int) -> simpleunits.RawUnits:
        """Units ``first`` to ``end``, up to :attr:`end` at most; zeros in place of missing ones."""
        units = np.zeros(max(0, min(end, self.end) - first), self._unit)
        at = 0
        while at < len(units):
            within = (first + at) % self._in_file
            count = min(len(units) - at, self._in_file - within)
            path, position = self.place(first + at)
            data = self._opened.read(path, position, count * self._unit.itemsize)
            some = np.frombuffer(data, self._unit, len(data) // self._unit.itemsize)
            units[at : at + len(some)] = some
            at += count
        return units

    def place(self, number: int) -> tuple[Path, int]:
        """The file of a unit, and the unit's first byte in it."""
        within = number % self._in_file
        path = self.directory / layout.segment_name((number - within) * self._unit.itemsize)
        return path, within * self._unit.itemsize

    def _find_end(self) -> int:
        for each in reversed(self._there):
            last = self._last_byte(each)
            if last is not None:
                return (each.start_offset + last) // self._unit.itemsize + 1
        return self.first

    def _last_byte(self, found: SegmentFile) -> int | None:
        """The position of the last nonzero byte of a file; ``None`` if there is none."""
        try:
            with self._opened.use(found.path) as file:
                return _last_byte(file, self._size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(found.path, error) from error


def _last_byte(file: File, size: int) -> int | None:
    last = None
    at = file.next_data(0)
    while at is not None and at < size:
        data = file.read_at(at, min(_READ_BYTES, size - at))
        if not data:
            break
        if stripped := data.rstrip(b"\x00"):
            last = at + len(stripped) - 1
        at = file.next_data(at + len(data))
    return last


def as_they_are(units: simpleunits.RawUnits) -> simpleunits.RawUnits:
    """``units`` unchanged, for queues whose units hold the tags codes themselves."""
    return units


@attrs.define
class _Missing:
    """Adjacent missing units.

    :ivar number: number of the first one
    :ivar offset: physical offset of its record
    :ivar count: number of missing units
    """

    number: int
    offset: int
    count: int = 0


@attrs.define(eq=False)
class UnitCheck:
    """The check of one queue.

    :param minimum: physical offset of the first byte of the log
    :param fields: the fields of a unit to compare, besides its physical offset
    :param replacements: returns the repair's records in the log so far; units of lost records may
        lead to them
    :param damaged: damage in the log so far; units may lead into it
    :ivar next: number of the first unit that was not compared yet
    """

    files: CheckedFiles
    _minimum: int
    _fields: Sequence[str]
    _resolve: Resolve
    _replacements: Callable[[], Replacements]
    _damaged: DamagedRanges
    next: int = attrs.field(init=False)
    _front: int = attrs.field(init=False)
    _shift: int = 0
    _stated: int = -1
    _stated_end: int = -1
    _leapt: Problem | None = None
    _missing: _Missing | None = None
    _late: _Missing | None = None

    def __attrs_post_init__(self) -> None:
        self.next = self._skip_old(self.files.first)
        self._front = self.next if not self.files.first and not self._minimum else 0

    @property
    def reached(self) -> int:
        """Physical end offset of the last unit's record; 0 without a unit."""
        last = self.files.read(max(self.files.end - 1, self.files.first), self.files.end)
        return int(last["offset"][0]) + int(last["size"][0]) if len(last) else 0

    @property
    def late(self) -> int:
        """The number of records after the last unit's that have no unit."""
        return self._late.count if self._late is not None else 0

    def _skip_old(self, at: int) -> int:
        """The number of the first unit that is no filler and belongs to a record of this log."""
        while at < self.files.end:
            units = self.files.read(at, at + _LOOKED_THROUGH)
            judged = self._judged(units)
            if judged.any():
                return at + int(judged.argmax())
            at += len(units)
        return at

    def _judged(self, units: simpleunits.RawUnits) -> Flags:
        fills = simpleunits.is_filler(units)
        if replacements := self._replacements():
            fills |= replacements.are_pointed_to(units)
        old = (units["offset"] >= 0) & (units["offset"] < self._minimum)
        fills |= self._damaged.hits(units["offset"].astype(np.int64))
        judged: Flags = ~fills & ~(old & (units["size"] > 0))
        return judged

    # --- records ---

    def take(self, expected: simpleunits.RawUnits, stated: Longs | None) -> Iterator[Problem]:
        """Compare the units of the next records.

        :param expected: the units of these records, in the order of the log
        :param stated: the queue offsets in the records; ``None`` if they do not determine a place,
            as in batch queues
        """
        # `_alike` compares as many units at once as match. After a mismatch, `_unlike` aligns units
        # and records again, and the step shrinks, as differences often follow one another.
        at, step = 0, len(expected)
        if self._front and step:
            yield from self._check_front(int(expected[0]["offset"]))
        while at < len(expected):
            part = slice(at, at + step)
            known = None if stated is None else stated[part]
            same = yield from self._alike(expected[part], known)
            at += same
            if same < min(step, len(expected) - at + same):
                at += yield from self._unlike(
                    expected[at:], None if stated is None else stated[at:]
                )
                step = _CHUNK
            elif at < len(expected):
                step = len(expected)

    def _alike(
        self, expected: simpleunits.RawUnits, stated: Longs | None
    ) -> Generator[Problem, None, int]:
        """Compare the leading units that belong to the expected records; returns their number."""
        units = self.files.read(self.next, self.next + len(expected))
        same = units["offset"] == expected[: len(units)]["offset"]
        count = len(same) if same.all() else int(same.argmin())
        if count:
            yield from self._missed()
            yield from self._compare(units[:count], expected[:count])
            if stated is not None:
                yield from self._check_places(expected[:count], stated[:count])
            self.next += count
        return count

    def _compare(
        self, units: simpleunits.RawUnits, expected: simpleunits.RawUnits
    ) -> Iterator[Problem]:
        """Compare units of the same records field by field."""
        units = self._resolve(units)
        wrong = np.zeros(len(units), np.bool_)
        for name in self._fields:
            wrong |= units[name] != expected[name]
        for at in np.flatnonzero(wrong).tolist():
            yield self._differs(self.next + at, units[at], expected[at])

    def _differs(self, number: int, unit: Any, expected: Any) -> Problem:
        place = self.files.place(number)
        return Problem(*place, DIFFERS, self._text(expected), self._text(unit))

    def _text(self, unit: Any) -> str:
        names = ("offset", *self._fields)
        return " ".join(f"{name}={int(unit[name])}" for name in names)

    def _check_places(self, expected: simpleunits.RawUnits, stated: Longs) -> Iterator[Problem]:
        """Check that the number of each unit agrees with the queue offset in its record.

        The two may differ in three cases, and the unit then follows the previous one: the log lost
        records, the queue offset was taken already, or it is 0, which RocketMQ puts at the end. A
        negative queue offset is always wrong. So is one so high that more records would be missing
        than fit into the log after the previous record.
        """
        # A shift is the number of a unit minus the queue offset in its record. It stays constant
        # within a moved part of a queue, so only its changes are judged.
        places = np.arange(self.next, self.next + len(stated))
        shifts = places - stated
        before = np.concatenate([[self._stated], stated[:-1]])
        changed = np.diff(shifts, prepend=self._shift) != 0
        lost = (stated > before + 1) & (shifts < 0) & (before >= 0)
        taken = (stated <= before) & (shifts > 0)
        wrong = changed & ~lost & ~taken & (stated != 0) & (shifts != 0)
        leaps = self._jumps(expected, shifts)
        leaps[:-1] &= shifts[1:] != shifts[:-1]  # if the next one agrees, the queue was moved
        wrong |= leaps | (stated < 0)
        if self._leapt is not None and int(shifts[0]) != self._shift:
            yield self._leapt
        self._leapt = None
        self._shift, self._stated = int(shifts[-1]), int(stated[-1])
        for at in np.flatnonzero(wrong).tolist():
            number = int(places[at])
            what = f"{int(stated[at])} in the record at {int(expected[at]['offset'])}"
            place = self.files.place(number)
            problem = Problem(*place, MISPLACED, f"queue offset {number}", what)
            if at == len(stated) - 1 and leaps[at]:
                self._leapt = problem  # the next record decides whether the queue was moved
            else:
                yield problem

    def _jumps(self, expected: simpleunits.RawUnits, shifts: Longs) -> Flags:
        """Records whose queue offset skips more records than fit into the log before them."""
        ends = expected["offset"] + expected["size"]
        starts = np.concatenate([[self._stated_end], ends[:-1]])
        steps = -np.diff(shifts, prepend=self._shift)
        self._stated_end = int(ends[-1])
        leaps: Flags = (shifts < 0) & (steps > 0) & (starts >= 0)
        leaps &= steps > (expected["offset"] - starts) // layout.RECORD_MIN_BYTES
        return leaps

    # --- where they differ ---

    def _unlike(
        self, expected: simpleunits.RawUnits, stated: Longs | None
    ) -> Generator[Problem, None, int]:
        """Handle a first record without its unit at :attr:`next`; returns the number handled."""
        if self.next >= self.files.end:
            self._behind_end(expected, stated)
            return len(expected)
        first = expected[0]
        number = None if stated is None else int(stated[0])
        found = self._find(int(first["offset"]), number)
        if found is not None:
            yield from self._unled(found, int(first["offset"]))
            yield from self._unexpected_units(found)
            if number is not None:
                self._shift, self._stated = found - number, number - 1
            return 0
        yield from self._absent(expected, number)
        return 1

    def _check_front(self, first_offset: int) -> Iterator[Problem]:
        """Check the fillers before the first record of a queue that starts at 0."""
        front, self._front = self._front, 0
        there = self.files.read(front, front + 1)
        found = len(there) and int(there["offset"][0]) == first_offset
        if found and is_explained(front, first_offset) and self._replacements():
            yield from self._holes(0, front, 0, first_offset)

    def _unled(self, end: int, offset: int) -> Iterator[Problem]:
        """Check the fillers from :attr:`next` to ``end``, the unit of the record at ``offset``."""
        if self.next > self.files.first and self._replacements():
            before = self.files.read(self.next - 1, self.next)[0]
            low = int(before["offset"]) + int(before["size"])
            yield from self._holes(self.next, end, low, offset)

    def _holes(self, at: int, end: int, low: int, high: int) -> Iterator[Problem]:
        """Report fillers that lead nowhere, although there is a replacement in the offset range."""
        found = self._replacements().between(low, high)
        while found is not None and at < end:
            units = self.files.read(at, min(end, at + _LOOKED_THROUGH))
            fills = simpleunits.is_filler(units)
            if fills.any():
                first = int(fills.argmax())
                place, expected = self.files.place(at + first), f"offset={found[0]} size={found[1]}"
                yield Problem(*place, UNLED, expected, self._text(units[first]))
                return
            at += len(units)

    def _find(self, offset: int, stated: int | None) -> int | None:
        """Number of the unit of the record at ``offset``, if near or at its own queue offset."""
        units = self.files.read(self.next, self.next + _LOOKED_THROUGH)
        near = np.flatnonzero(units["offset"] == offset)
        if len(near):
            return self.next + int(near[0])
        if stated is not None and stated > self.next:
            there = self.files.read(stated, stated + 1)
            if len(there) and int(there["offset"][0]) == offset:
                return stated
        return None

    def _absent(self, expected: simpleunits.RawUnits, stated: int | None) -> Iterator[Problem]:
        """Report the first record, which has no unit: another unit is in its place, or none."""
        first = expected[0]
        offset = int(first["offset"])
        place = self.next if stated is None else max(self.next, stated + self._shift)
        there = self.files.read(place, place + 2)
        if not len(there):
            self._note_missing(place, offset)
            return
        unit = there[0]
        follows = len(expected) > 1 and len(there) > 1
        in_place = follows and there[1]["offset"] == expected[1]["offset"]
        if in_place or int(unit["size"]) <= 0 or int(unit["offset"]) < offset:
            yield from self._unexpected_units(place)
            self.next = place + 1
            if not unit.tobytes().strip(b"\x00"):
                self._note_missing(place, offset)
                return
            yield from self._missed()
            yield self._differs(place, unit, first)
        elif not stated or stated >= place:  # else its place was taken, and RocketMQ skipped it
            self._note_missing(place, offset)

    def _unexpected_units(self, end: int, log_end: int | None = None) -> Iterator[Problem]:
        """Report the units before ``end``, which belong to no record.

        :param log_end: physical end of the log, if known; recovery removes units of later records
        """
        if self.next < end:
            yield from self._missed()
        while self.next < end:
            units = self.files.read(self.next, min(end, self.next + _LOOKED_THROUGH))
            for at in np.flatnonzero(self._judged(units)).tolist():
                behind = log_end is not None and int(units["offset"][at]) >= log_end
                place, text = self.files.place(self.next + at), self._text(units[at])
                yield Problem(*place, OF_NO_RECORD, "", text, recoverable=behind)
            self.next += len(units)

    def _note_missing(self, number: int, offset: int) -> None:
        if self._missing is None:
            self._missing = _Missing(number, offset)
        self._missing.count += 1

    def _missed(self, *, at_end: bool = False) -> Iterator[Problem]:
        """Report the missing units noted so far."""
        missing, self._missing = self._missing, None
        if missing is not None:
            yield self._lacks(missing, at_end=at_end)

    def _lacks(self, missing: _Missing, *, at_end: bool) -> Problem:
        place, number = self.files.place(missing.number), missing.number
        expected = (
            f"{missing.count} from queue offset {number} on, the first for the record at "
            f"{missing.offset}"
        )
        return Problem(*place, MISSING, expected, "nothing", recoverable=at_end)

    def _behind_end(self, expected: simpleunits.RawUnits, stated: Longs | None) -> None:
        if self._late is None:
            place = self.next if stated is None else max(self.next, int(stated[0]))
            self._late = _Missing(place, int(expected[0]["offset"]))
        self._late.count += len(expected)

    # --- the end ---

    def finish(self, end_offset: int, *, living: bool) -> Iterator[Problem]:
        """Check the units after the last record of a log that ends at ``end_offset``.

        While an owner writes, units of records at or after that offset are not self._ Missing
        units noted here are at the end of the queue, so a recovery adds them.
        """
        yield from self._missed(at_end=True)
        if living:
            while self.next < self.files.end:
                part = self.files.read(self.next, self.next + _LOOKED_THROUGH)
                new = part["offset"] >= end_offset
                yield from self._unexpected_units(
                    self.next + (int(new.argmax()) if new.any() else len(part))
                )
                if new.any():
                    break
        else:
            yield from self._unexpected_units(self.files.end, end_offset)
        if self._leapt is not None:
            yield self._leapt
        if self._late is not None:
            yield self._lacks(self._late, at_end=True)

    def forget_late(self) -> None:
        """Forget the records without a unit at the end: their units have been written since."""
        self._late = None


def ext_resolver(
    files: FileSystem, directory: Path, file_size_bytes: int, opened: OpenFiles
) -> tuple[Resolve, list[Problem]]:
    """A function that replaces addresses by tags codes, and problems with names and lengths.

    The function leaves an address unchanged if there is no unit at it.
    """
    if not directory.is_dir():
        return as_they_are, []
    ext = ExtFiles(files, directory, file_size_bytes, read_only=True, opened=opened)
    try:
        ext.load()
    except CorruptQueue as error:
        return as_they_are, [Problem(Path(error.path or directory), 0, BROKEN, "", str(error))]

    def resolve(units: simpleunits.RawUnits) -> simpleunits.RawUnits:
        codes = units["tags_code"].astype(np.int64)
        at = np.flatnonzero(is_address(codes))
        if not len(at):
            return units
        codes[at] = _codes(ext, codes[at])
        resolved = units.copy()
        resolved["tags_code"] = codes
        return resolved

    return resolve, []


def _codes(ext: ExtFiles, addresses: Longs) -> Longs:
    try:
        return ext.resolve(addresses)[0]
    except CorruptQueue:
        if len(addresses) == 1:
            return addresses
    half = len(addresses) // 2
    return np.concatenate([_codes(ext, addresses[:half]), _codes(ext, addresses[half:])])


@attrs.define(eq=False, slots=False)
class QueuesVerifier:
    """A :class:`~lakelog.hooks.dispatching.Verifier`.

    Light queues are checked if the settings enable them, or if there is one. While an owner writes,
    only records are checked that end at or before the physical end of the most advanced queue at
    the start. The check waits up to a second for their units.

    :param path: the store directory
    :param batch_topics: topics with batch queues
    :param light_queues: whether records feed light queues
    :param tombstones: by topic, the physical offset below which its records have no units
    :param minimum: physical offset of the first byte of the log
    :param living: whether an owner writes meanwhile
    """

    _files: FileSystem
    _path: Path
    _settings: ConsumeQueueSettings
    _batch_topics: Collection[str]
    _light_queues: bool
    _tombstones: Mapping[str, int]
    _minimum: int
    _living: bool

    def __attrs_post_init__(self) -> None:
        self._opened = OpenFiles(self._files, write=False, most=_MOST_OPEN)
        self._queues: dict[Queue, UnitCheck] = {}
        self._replacing: list[Units] = []
        self._replacements = Replacements.of(())
        self._damaged = DamagedRanges()
        self._own: list[Problem] = []
        for queue in present_queues(self._path, self._batch_topics):
            self._queues[queue] = self._check(queue)
            self._own += self._of_files(self._queues[queue])
        self._reach = max((each.reached for each in self._queues.values()), default=0)
        light = any(topic.startswith(LIGHT_QUEUE_PREFIX) for topic, _ in self._queues)
        self._grouping = Grouping(self._batch_topics, self._light_queues or light, self._tombstones)

    def take(self, batch: RecordBatch) -> Iterator[Problem]:
        """Compare with a run of records."""
        yield from self._look()
        for group in self._grouping.units(batch):
            if group.queue[0] == REPAIRED_TOPIC:
                self._replacing.append(group.columns[0])
                self._replacements = Replacements.of(self._replacing)
            found = self._queues.get(group.queue)
            if found is None:
                found = self._queues[group.queue] = self._check(group.queue)
                if self._living:
                    # It was made after the check began, so its units are not compared.
                    found.next = found.files.end = found.files.first
            if found.files.fits:
                yield from self._compare(found, group)

    def pass_damage(self, offset: int, end_offset: int) -> None:
        """Accept units that lead into this range; it is reported as damage of the log instead."""
        self._damaged.add(offset, end_offset)

    def finish(self, end_offset: int) -> Iterator[Problem]:
        """Compare the remaining units."""
        yield from self._look()
        if self._living:
            self._wait_for_late()
        for found in self._queues.values():
            if found.files.fits:
                yield from found.finish(end_offset, living=self._living)

    def close(self) -> None:
        """Close the files."""
        self._opened.close()

    def _look(self) -> Iterator[Problem]:
        """Problems with names and lengths of files; each is returned once."""
        while self._own:
            yield self._own.pop(0)

    def _check(self, queue: Queue) -> UnitCheck:
        name, settings = (queue[0], str(queue[1])), self._settings
        resolve: Resolve = as_they_are
        if queue[0] in self._batch_topics:
            folder, fields, unit = layout.BATCHCONSUMEQUEUE_DIR, _BATCH, batchqueue.UNIT
            size, is_led = settings.batch_file_size_bytes, False
        else:
            folder, fields, unit = layout.CONSUMEQUEUE_DIR, _SIMPLE, np.dtype(simpleunits.UNIT)
            size = settings.file_entries * simpleunits.UNIT_BYTES
            is_led = queue[0] != REPAIRED_TOPIC
            ext = self._path.joinpath(layout.CONSUMEQUEUE_EXT_DIR, *name)
            resolve, wrong = ext_resolver(
                self._files, ext, settings.ext_file_size_bytes, self._opened
            )
            self._own += wrong
        place, none = self._path.joinpath(folder, *name), Replacements.of(())
        files = CheckedFiles(self._files, self._opened, place, unit, size)

        def replacements() -> Replacements:
            return self._replacements if is_led else none

        return UnitCheck(files, self._minimum, fields, resolve, replacements, self._damaged)

    def _of_files(self, queue: UnitCheck) -> list[Problem]:
        """Problems with names and lengths of files."""
        found = list(queue.files.problems())
        for _ in range(_LOOKS if self._living and found else 0):
            queue.files.look()
            found = list(queue.files.problems())
        return found

    def _compare(self, found: UnitCheck, group: QueueUnits) -> Iterator[Problem]:
        units, times = group.columns
        if self._living:
            due = units.offsets + units.sizes <= self._reach
            units, times = units[due], times[due]
        if group.queue[0] not in self._batch_topics:
            yield from found.take(simpleunits.pack(units), units.queue_offsets)
            return
        fit = batchqueue.readable(units)
        yield from found.take(batchqueue.pack(units[fit], times[fit]), None)

    def _wait_for_late(self) -> None:
        """Wait for queues to grow, and forget missing units that were written meanwhile."""
        until = time.monotonic() + _PATIENCE_SECONDS
        late = [each for each in self._queues.values() if each.late]
        while late and time.monotonic() < until:
            for each in late:
                self._forget_if_there(each)
            late = [each for each in late if each.late]
            if late:
                time.sleep(_LOOK_AGAIN_SECONDS)

    def _forget_if_there(self, queue: UnitCheck) -> None:
        end = queue.files.end
        queue.files.look()
        if queue.files.end - end >= queue.late:
            queue.forget_late()
        queue.files.end = end


def queues_with_replacements(files: FileSystem, path: Path) -> tuple[Queue, ...]:
    """The queues with units that lead to a repair's records, sorted; changes nothing.

    See :mod:`lakelog_queues.files.replaced`.

    :param path: the store directory
    """
    root = path / layout.CONSUMEQUEUE_DIR
    try:
        queues = sorted(queues_in(root))
    except OSError as error:
        raise unreadable(root, error) from error
    with closing(OpenFiles(files, write=False, most=_MOST_OPEN)) as opened:
        own = [_units(files, opened, root, each) for each in queues if each[0] == REPAIRED_TOPIC]
        whole = [each.read(each.first, each.end) for each in own if each is not None]
        replacements = Replacements.of(simpleunits.unpack(units, 0) for units in whole)
        return tuple(
            queue
            for queue in queues
            if replacements
            and queue[0] != REPAIRED_TOPIC
            and _points_to(_units(files, opened, root, queue), replacements)
        )


def _points_to(units: CheckedFiles | None, replacements: Replacements) -> bool:
    """Whether any unit leads to a replacement."""
    if units is None:
        return False

    def read(first: int, count: int) -> bytes:
        return units.read(first, first + count).tobytes()

    places = (
        first_behind(read, units.first, units.end, each) for each in replacements.offsets.tolist()
    )
    found = (read(at, 1) for at in places if at < units.end)
    return any(
        bool(np.any(replacements.are_pointed_to(simpleunits.columns(each)))) for each in found
    )


def _units(files: FileSystem, opened: OpenFiles, root: Path, queue: Queue) -> CheckedFiles | None:
    """The units of a simple queue; ``None`` if its files have different or impossible lengths."""
    folder = root / queue[0] / str(queue[1])
    sizes = {each.length for each in segment_files(folder, files.list(folder)) if each.length}
    if len(sizes) != 1 or min(sizes) % simpleunits.UNIT_BYTES:
        return None
    return CheckedFiles(files, opened, folder, np.dtype(simpleunits.UNIT), sizes.pop())
