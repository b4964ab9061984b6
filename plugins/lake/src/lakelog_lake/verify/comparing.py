"""Compares the rows of one part of a log with those of a table, and collects what differs.

The result has ranges of differing rows, and counts for each queue. Adjacent ranges of one kind are
merged, in any order of their discovery. Beyond :data:`MOST_RANGES` ranges are only counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from lakelog_lake.verify.row_facts import CRC_BAD, NO_BODY, Facts

Longs: TypeAlias = "NDArray[np.int64]"
MISSING: Final = "missing"
EXTRA: Final = "extra"
AHEAD: Final = "ahead"
DOUBLED: Final = "doubled"
BODY: Final = "body"
COLUMNS: Final = "columns"
PLACE: Final = "place"
CRC: Final = "crc"
GAP: Final = "gap"
MEANINGS: Final = {
    MISSING: "in the log before the table's position, but not in the table",
    EXTRA: "in the table, but not in the log",
    AHEAD: "in the table behind its position",
    DOUBLED: "more than once in the table",
    PLACE: "in another queue, or at another queue offset, than in the log",
    BODY: "with another body than in the log",
    COLUMNS: "with another value than in the log in a column that is not the body",
    CRC: "with a body that does not match its checksum; no longer in the log",
    GAP: "queue offsets without a row; no longer in the log",
}
"""The kinds that count as differences; a gap does not, as there is nothing to compare it with."""
MOST_RANGES: Final = 1000


@attrs.define
class Range:
    """Adjacent rows of one queue with the same kind of difference.

    :ivar queue: number of the queue
    :ivar first: queue offset of the first row
    :ivar last: queue offset of the last row
    :ivar start: physical offset of the first row
    :ivar end: physical offset of the last row
    """

    kind: str
    queue: int
    first: int
    last: int
    start: int
    end: int
    rows: int

    def takes(self, other: Range) -> bool:
        """Merge ``other`` into this range if they are adjacent; return whether that was done."""
        touches = other.first <= self.last + 1 and other.last >= self.first - 1
        if touches:
            self.first, self.last = min(self.first, other.first), max(self.last, other.last)
            self.start, self.end = min(self.start, other.start), max(self.end, other.end)
            self.rows += other.rows
        return touches


@attrs.define
class Tally:
    """Counts of one queue.

    :ivar log: records that should be rows
    :ivar table: rows that were compared
    :ivar older: rows of messages deleted from the log
    :ivar gaps: missing queue offsets between rows
    :ivar kinds: rows by kind of difference
    """

    log: int = 0
    table: int = 0
    older: int = 0
    gaps: int = 0
    kinds: dict[str, int] = attrs.field(factory=dict)


@attrs.define
class Differences:
    """Collects counts and ranges."""

    tallies: dict[int, Tally] = attrs.field(factory=dict)
    ranges: list[Range] = attrs.field(factory=list)
    not_listed: int = 0
    _last: dict[tuple[str, int], Range] = attrs.field(factory=dict)

    @property
    def rows(self) -> int:
        """The number of differing rows."""
        return sum(
            count
            for tally in self.tallies.values()
            for kind, count in tally.kinds.items()
            if kind != GAP
        )

    def of(self, queue: int) -> Tally:
        """The counts of a queue."""
        return self.tallies.setdefault(queue, Tally())

    def count(self, which: str, facts: Facts) -> None:
        """Add the number of rows of each queue to its ``log``, ``table`` or ``older``."""
        queues, counts = np.unique(facts["queue"], return_counts=True)
        for queue, rows in zip(queues.tolist(), counts.tolist(), strict=True):
            tally = self.of(queue)
            setattr(tally, which, getattr(tally, which) + rows)

    def add(self, kind: str, facts: Facts) -> None:
        """Add differing rows, to counts and ranges."""
        if not len(facts):
            return
        order = np.lexsort((facts["at"], facts["offset"], facts["queue"]))
        rows = facts[order]
        jumps = np.diff(rows["offset"]) > rows["takes"][:-1]
        cuts = np.flatnonzero((np.diff(rows["queue"]) != 0) | jumps) + 1
        for run in np.split(rows, cuts):
            self.add_range(_range(kind, run))

    def add_range(self, found: Range) -> None:
        """Add one range; its rows need not be counted yet."""
        tally = self.of(found.queue)
        tally.kinds[found.kind] = tally.kinds.get(found.kind, 0) + found.rows
        last = self._last.get((found.kind, found.queue))
        if last is not None and last.takes(found):
            return
        if len(self.ranges) >= MOST_RANGES:
            self.not_listed += 1
            return
        self.ranges.append(found)
        self._last[found.kind, found.queue] = found

    def each(self) -> Iterator[Range]:
        """The ranges, by kind and in log order."""
        kinds = list(MEANINGS)
        yield from sorted(self.ranges, key=lambda each: (kinds.index(each.kind), each.start))


def _range(kind: str, run: Any) -> Range:
    """Make the range of ``run``, adjacent rows of one queue."""
    takes = np.maximum(run["takes"], 1)
    return Range(
        kind,
        int(run["queue"][0]),
        int(run["offset"][0]),
        int((run["offset"] + takes).max()) - 1,
        int(run["at"].min()),
        int(run["at"].max()),
        len(run),
    )


@attrs.frozen
class VerifiableEnds:
    """The bounds of a comparison, in bytes of the log.

    :ivar low: start of the log
    :ivar end: position of the table before its rows were read
    :ivar landed: its position afterwards, as dispatchers may have committed meanwhile
    """

    low: int
    end: int
    landed: int


@attrs.define
class Comparison:
    """Compares a log and a table part by part, in log order.

    :ivar bodies_may_lack: whether rows without a body are valid, as their body was parsed
    """

    limits: VerifiableEnds
    bodies_may_lack: bool = False
    found: Differences = attrs.field(factory=Differences)
    _next: dict[int, int] = attrs.field(factory=dict)

    def part(self, log: Facts, table: Facts) -> None:
        """Compare one part, given all of its rows in any order."""
        # Those that landed while the table was read may be incomplete.
        recent = (table["at"] >= self.limits.end) & (table["at"] < self.limits.landed)
        table = _sorted(table[~recent])
        again = np.zeros(len(table), np.bool_)
        again[1:] = table["at"][1:] == table["at"][:-1]
        self.found.add(DOUBLED, table[again])
        rows = table[~again]
        self._gaps(rows)
        older = self._is_older(rows)
        ahead = rows["at"] >= self.limits.end
        self.found.count("older", rows[older])
        self.found.add(CRC, rows[older & (rows["crc"] == CRC_BAD)])
        self.found.add(AHEAD, rows[ahead])
        self.found.count("table", table[~self._is_older(table)])
        self._both(_sorted(log), rows[~older & ~ahead])

    def _is_older(self, rows: Facts) -> NDArray[np.bool_]:
        """Rows of messages deleted from the log; a row without a place was never in it."""
        found: NDArray[np.bool_] = (rows["at"] >= 0) & (rows["at"] < self.limits.low)
        return found

    def _both(self, log: Facts, rows: Facts) -> None:
        self.found.count("log", log)
        _, in_log, in_rows = np.intersect1d(
            log["at"], rows["at"], assume_unique=True, return_indices=True
        )
        self.found.add(MISSING, _without(log, in_log))
        self.found.add(EXTRA, _without(rows, in_rows))
        left, right = log[in_log], rows[in_rows]
        moved = (left["queue"] != right["queue"]) | (left["offset"] != right["offset"])
        self.found.add(PLACE, right[moved])
        altered = left["body"] != right["body"]
        if self.bodies_may_lack:
            altered &= right["body"] != NO_BODY
        self.found.add(BODY, left[altered])
        self.found.add(COLUMNS, left[left["rest"] != right["rest"]])

    def _gaps(self, rows: Facts) -> None:
        """Report queue offsets without a row between two offsets with rows.

        :param rows: rows in log order; offsets of a deleted queue may start again at 0
        """
        ordered = rows[np.argsort(rows["queue"], kind="stable")]
        cuts = np.flatnonzero(np.diff(ordered["queue"])) + 1
        for run in np.split(ordered, cuts) if len(ordered) else ():
            queue = int(run["queue"][0])
            ends = run["offset"] + run["takes"]
            first = self._next.get(queue, int(run["offset"][0]))
            wanted = np.concatenate([[first], ends[:-1]])
            self._next[queue] = int(ends[-1])
            gaps = np.maximum(run["offset"] - wanted, 0)
            self.found.of(queue).gaps += int(gaps.sum())
            for at in np.flatnonzero((gaps > 0) & (run["at"] < self.limits.low)).tolist():
                place, low, end = int(run["at"][at]), int(wanted[at]), int(run["offset"][at])
                self.found.add_range(Range(GAP, queue, low, end - 1, place, place, end - low))


def _sorted(facts: Facts) -> Facts:
    return facts[np.argsort(facts["at"], kind="stable")]


def _without(facts: Facts, places: Longs) -> Facts:
    left = np.ones(len(facts), np.bool_)
    left[places] = False
    return facts[left]
