"""Compares the units of one queue with those that its records must have, run by run.

Units stand in the order of the log. A run that is as it should be costs one read and one
comparison; where one is not, the two are brought together again by the records' offsets. Kept
between runs: a handful of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog.format.layout import RECORD_MIN_BYTES
from lakelog.format.queue_units import is_filler
from lakelog.format.units import Longs
from lakelog.interfaces.verifying import DamagedRanges, Problem
from lakelog_queues.check.checkfiles import CheckedFiles, RawUnits
from lakelog_queues.dispatching.placement import is_explained
from lakelog_queues.files.replaced import NO_REPLACEMENTS, Replacements

MISSING: Final = "units are missing"
OF_NO_RECORD: Final = "the unit is of no whole record in the log that has its place here"
DIFFERS: Final = "the unit is not that of its record"
MISPLACED: Final = "the record states another queue offset than its place"
UNLED: Final = "the place of a lost record does not lead to what a repair put in its place"
_LOOKED_THROUGH: Final = 4096
_CHUNK: Final = 256

Resolve: TypeAlias = Callable[[RawUnits], RawUnits]
"""Puts tags codes in the place of what stands for them."""


def as_they_are(units: RawUnits) -> RawUnits:
    """For queues that keep tags codes in their units."""
    return units


@attrs.define
class _Missing:
    """Units that are missing side by side: number of the first, its record, how many."""

    number: int
    offset: int
    count: int = 0


class UnitCheck:
    """One queue on its way through the log.

    :param replacements: gives the records of a repair that came by until now; units of lost records
        lead there
    :param damaged: damage in the log so far; units that lead into it are right to stand there
    :ivar next: number of the first unit that was not compared yet
    """

    def __init__(
        self,
        files: CheckedFiles,
        minimum: int,
        *,
        fields: Sequence[str],
        resolve: Resolve,
        replacements: Callable[[], Replacements] = lambda: NO_REPLACEMENTS,
        damaged: DamagedRanges | None = None,
    ) -> None:
        self.files = files
        self._minimum = minimum
        self._fields = fields
        self._resolve = resolve
        self._replacements = replacements
        self._damaged = damaged or DamagedRanges()
        self.next = self._skip_old(files.first)
        self._front = self.next if not files.first and not minimum else 0
        self._shift = 0
        self._stated = -1
        self._stated_end = -1
        self._leapt: Problem | None = None
        self._missing: _Missing | None = None
        self._late: _Missing | None = None

    @property
    def reached(self) -> int:
        """Physical offset behind the record of the last unit; 0 without one."""
        last = self.files.read(max(self.files.end - 1, self.files.first), self.files.end)
        return int(last["offset"][0]) + int(last["size"][0]) if len(last) else 0

    @property
    def late(self) -> int:
        """How many records behind the last unit lack one."""
        return self._late.count if self._late is not None else 0

    def _skip_old(self, at: int) -> int:
        """Behind units of records before the log, and those that only fill a place."""
        while at < self.files.end:
            units = self.files.read(at, at + _LOOKED_THROUGH)
            judged = self._judged(units)
            if judged.any():
                return at + int(judged.argmax())
            at += len(units)
        return at

    def _judged(self, units: RawUnits) -> NDArray[np.bool_]:
        fills = is_filler(units)
        if replacements := self._replacements():
            fills |= replacements.are_led_to(units)
        old = (units["offset"] >= 0) & (units["offset"] < self._minimum)
        fills |= self._damaged.hits(units["offset"].astype(np.int64))
        judged: NDArray[np.bool_] = ~fills & ~(old & (units["size"] > 0))
        return judged

    # --- records ---

    def take(self, expected: RawUnits, stated: Longs | None) -> Iterator[Problem]:
        """Compare with the units of the next records.

        :param stated: the queue offsets that the records state; ``None`` if they say nothing of
            the place
        """
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

    def _alike(self, expected: RawUnits, stated: Longs | None) -> Generator[Problem, None, int]:
        """Pass units of the same records; how many there are at the front."""
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

    def _compare(self, units: RawUnits, expected: RawUnits) -> Iterator[Problem]:
        """Compare units of the same records field by field."""
        units = self._resolve(units)
        wrong = np.zeros(len(units), np.bool_)
        for name in self._fields:
            wrong |= units[name] != expected[name]
        for at in np.flatnonzero(wrong).tolist():
            yield self._differs(self.next + at, units[at], expected[at])

    def _differs(self, number: int, unit: Any, expected: Any) -> Problem:
        path, position = self.files.place(number)
        return Problem(path, position, DIFFERS, self._text(expected), self._text(unit))

    def _text(self, unit: Any) -> str:
        names = ("offset", *self._fields)
        return " ".join(f"{name}={int(unit[name])}" for name in names)

    def _check_places(self, expected: RawUnits, stated: Longs) -> Iterator[Problem]:
        """A unit stands where its record says; or behind the one before it, if the log lost some.

        So does one that states a place that is taken; RocketMQ puts a record that states 0 at the
        end, too. Nothing explains a negative one, or one so high that more records
        would be missing than fit behind the one before.
        """
        places = np.arange(self.next, self.next + len(stated))
        shifts = places - stated
        before = np.concatenate([[self._stated], stated[:-1]])
        changed = np.diff(shifts, prepend=self._shift) != 0
        lost = (stated > before + 1) & (shifts < 0) & (before >= 0)
        taken = (stated <= before) & (shifts > 0)
        wrong = changed & ~lost & ~taken & (stated != 0) & (shifts != 0)
        leaps = self._leaps(expected, shifts)
        leaps[:-1] &= shifts[1:] != shifts[:-1]  # a queue that goes on from there was moved
        wrong |= leaps | (stated < 0)
        if self._leapt is not None and int(shifts[0]) != self._shift:
            yield self._leapt
        self._leapt = None
        self._shift, self._stated = int(shifts[-1]), int(stated[-1])
        for at in np.flatnonzero(wrong).tolist():
            path, position = self.files.place(int(places[at]))
            place = f"queue offset {int(places[at])}"
            what = f"{int(stated[at])} in the record at {int(expected[at]['offset'])}"
            problem = Problem(path, position, MISPLACED, place, what)
            if at == len(stated) - 1 and leaps[at]:
                self._leapt = problem  # the next record tells
            else:
                yield problem

    def _leaps(self, expected: RawUnits, shifts: Longs) -> NDArray[np.bool_]:
        """Records that state more than those that fit behind the one before explain."""
        ends = expected["offset"] + expected["size"]
        starts = np.concatenate([[self._stated_end], ends[:-1]])
        steps = -np.diff(shifts, prepend=self._shift)
        self._stated_end = int(ends[-1])
        leaps: NDArray[np.bool_] = (shifts < 0) & (steps > 0) & (starts >= 0)
        leaps &= steps > (expected["offset"] - starts) // RECORD_MIN_BYTES
        return leaps

    # --- where they differ ---

    def _unlike(self, expected: RawUnits, stated: Longs | None) -> Generator[Problem, None, int]:
        """The first of these records is not at :attr:`next`; how many are done with."""
        if self.next >= self.files.end:
            self._behind_end(expected, stated)
            return len(expected)
        first = expected[0]
        number = None if stated is None else int(stated[0])
        found = self._find(int(first["offset"]), number)
        if found is not None:
            yield from self._unled(found, int(first["offset"]))
            yield from self._strangers(found)
            if number is not None:
                self._shift, self._stated = found - number, number - 1
            return 0
        yield from self._absent(expected, number)
        return 1

    def _check_front(self, first_offset: int) -> Iterator[Problem]:
        """Look at the fillers before the first record, at this offset, of a queue from 0 on."""
        front, self._front = self._front, 0
        there = self.files.read(front, front + 1)
        found = len(there) and int(there["offset"][0]) == first_offset
        if found and is_explained(front, first_offset) and self._replacements():
            yield from self._holes(0, front, 0, first_offset)

    def _unled(self, end: int, offset: int) -> Iterator[Problem]:
        """Look at the fillers from :attr:`next` to ``end``, where the record at ``offset`` is."""
        if self.next > self.files.first and self._replacements():
            before = self.files.read(self.next - 1, self.next)[0]
            low = int(before["offset"]) + int(before["size"])
            yield from self._holes(self.next, end, low, offset)

    def _holes(self, at: int, end: int, low: int, high: int) -> Iterator[Problem]:
        """Fillers that lead nowhere, although a replacement stands between two offsets."""
        found = self._replacements().between(low, high)
        while found is not None and at < end:
            units = self.files.read(at, min(end, at + _LOOKED_THROUGH))
            fills = is_filler(units)
            if fills.any():
                number = at + int(fills.argmax())
                path, position = self.files.place(number)
                expected = f"offset={found[0]} size={found[1]}"
                yield Problem(path, position, UNLED, expected, self._text(units[number - at]))
                return
            at += len(units)

    def _find(self, offset: int, stated: int | None) -> int | None:
        """Number of the unit of the record at ``offset``, if it is near or where it should be."""
        units = self.files.read(self.next, self.next + _LOOKED_THROUGH)
        near = np.flatnonzero(units["offset"] == offset)
        if len(near):
            return self.next + int(near[0])
        if stated is not None and stated > self.next:
            there = self.files.read(stated, stated + 1)
            if len(there) and int(there["offset"][0]) == offset:
                return stated
        return None

    def _absent(self, expected: RawUnits, stated: int | None) -> Iterator[Problem]:
        """There is no unit of the first record: another is in its place, or none ever was."""
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
            yield from self._strangers(place)
            self.next = place + 1
            if not unit.tobytes().strip(b"\x00"):
                self._note_missing(place, offset)
                return
            yield from self._missed()
            yield self._differs(place, unit, first)
        elif not stated or stated >= place:  # else its place was taken, and RocketMQ left it out
            self._note_missing(place, offset)

    def _strangers(self, end: int, log_end: int | None = None) -> Iterator[Problem]:
        """Pass the units before ``end``, which are of no record; ``log_end`` if that is known."""
        if self.next < end:
            yield from self._missed()
        while self.next < end:
            units = self.files.read(self.next, min(end, self.next + _LOOKED_THROUGH))
            for at in np.flatnonzero(self._judged(units)).tolist():
                path, position = self.files.place(self.next + at)
                behind = log_end is not None and int(units["offset"][at]) >= log_end
                text = self._text(units[at])
                yield Problem(path, position, OF_NO_RECORD, "", text, recoverable=behind)
            self.next += len(units)

    def _note_missing(self, number: int, offset: int) -> None:
        if self._missing is None:
            self._missing = _Missing(number, offset)
        self._missing.count += 1

    def _missed(self) -> Iterator[Problem]:
        """What was missing up to here."""
        if self._missing is not None:
            yield self._lacks(self._missing)
            self._missing = None

    def _lacks(self, missing: _Missing, *, at_end: bool = False) -> Problem:
        path, position = self.files.place(missing.number)
        return Problem(
            path,
            position,
            MISSING,
            f"{missing.count} from queue offset {missing.number} on, the first of them of the "
            f"record at {missing.offset}",
            "nothing",
            recoverable=at_end,
        )

    def _behind_end(self, expected: RawUnits, stated: Longs | None) -> None:
        if self._late is None:
            place = self.next if stated is None else max(self.next, int(stated[0]))
            self._late = _Missing(place, int(expected[0]["offset"]))
        self._late.count += len(expected)

    # --- the end ---

    def finish(self, end_offset: int, *, living: bool) -> Iterator[Problem]:
        """What is left of a log that ends at ``end_offset``.

        Beside a living owner, units of records at or behind it are not judged. What is missing now
        is missing up to the end: no unit came behind it.
        """
        if self._missing is not None:
            yield self._lacks(self._missing, at_end=True)
            self._missing = None
        if living:
            while self.next < self.files.end:
                part = self.files.read(self.next, self.next + _LOOKED_THROUGH)
                new = part["offset"] >= end_offset
                yield from self._strangers(
                    self.next + (int(new.argmax()) if new.any() else len(part))
                )
                if new.any():
                    break
        else:
            yield from self._strangers(self.files.end, end_offset)
        if self._leapt is not None:
            yield self._leapt
        if self._late is not None:
            yield self._lacks(self._late, at_end=True)

    def leave_out(self) -> None:
        """Compare with no unit that is there."""
        self.next = self.files.end = self.files.first

    def forget_late(self) -> None:
        """What came behind the end is no problem: its units were on their way."""
        self._late = None
