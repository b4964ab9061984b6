"""Compares the rows of one part of a log with those of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np

from lakelog_lake.verify.differences import (
    AHEAD,
    BODY,
    COLUMNS,
    CRC,
    DOUBLED,
    EXTRA,
    GAP,
    MISSING,
    PLACE,
    Differences,
    Range,
)
from lakelog_lake.verify.row_facts import CRC_BAD, NO_BODY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog_lake.verify.row_facts import Facts

    Longs = NDArray[np.int64]


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
        table = _sorted(self._without_recent(table))
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

    def _without_recent(self, table: Facts) -> Facts:
        """The rows without those that landed while the table was read, which may be incomplete."""
        meanwhile = (table["at"] >= self.limits.end) & (table["at"] < self.limits.landed)
        return table[~meanwhile]

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
                self.found.add_range(_gap(queue, run, int(wanted[at]), at))


def _gap(queue: int, run: Facts, wanted: int, at: int) -> Range:
    """The gap before the row at ``at`` of ``run``."""
    place, end = int(run["at"][at]), int(run["offset"][at])
    return Range(GAP, queue, wanted, end - 1, place, place, end - wanted)


def _sorted(facts: Facts) -> Facts:
    return facts[np.argsort(facts["at"], kind="stable")]


def _without(facts: Facts, places: Longs) -> Facts:
    left = np.ones(len(facts), np.bool_)
    left[places] = False
    return facts[left]
