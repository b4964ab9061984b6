"""The result of a comparison: ranges of differing rows, and counts for each queue.

Adjacent ranges of one kind are merged, in any order of their discovery. Beyond :data:`MOST_RANGES`
ranges are only counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

if TYPE_CHECKING:
    from lakelog_lake.verify.row_facts import Facts

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
