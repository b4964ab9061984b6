"""Removes rows of a store whose log was cut, so that landing can continue behind the rest.

Every row is compared with the log. From the first row on that differs from the log, all rows of the
store are removed, in the commit that moves the position back to the end of the last remaining row.
The next dispatch lands the present records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

import lakelog
from lakelog_lake.errors import Conflict, TooBusy, TooManyDifferences
from lakelog_lake.log.selection import Chosen
from lakelog_lake.maintenance.row_removal import RowsFrom, take_out
from lakelog_lake.readback.landed_table import LandedTable
from lakelog_lake.readback.open import OpenTable, all_opened, readable
from lakelog_lake.sinks.history import LAST_ROWS, positions_of
from lakelog_lake.tables.position import Position
from lakelog_lake.verify.differences import BODY, COLUMNS, EXTRA, PLACE
from lakelog_lake.verify.verify import VerifyRequest, bounds_of, verify_here

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_IN_LOG: Final = (EXTRA, PLACE, BODY, COLUMNS)


@attrs.frozen
class RewoundRows:
    """The rows of one queue to remove.

    :ivar first: queue offset of the first row
    :ivar last: queue offset of the last row
    :ivar start: physical offset of the first row
    :ivar rows: number of rows
    """

    topic: str
    queue: int
    first: int
    last: int
    start: int
    rows: int


@attrs.frozen
class Rewind:
    """The planned change of one table.

    :ivar before: its present position
    :ivar after: its position after the change
    :ivar start: physical offset of the first row that is removed
    """

    table: LandedTable
    store: str
    before: Position
    after: Position
    start: int
    queues: tuple[RewoundRows, ...]

    @property
    def rows(self) -> int:
        """The number of rows to remove."""
        return sum(each.rows for each in self.queues)

    def do(self) -> None:
        """Commit the change; raises :class:`~lakelog_lake.errors.TooBusy`."""
        try:
            take_out(self.table, self.store, RowsFrom(self.start), self.before, self.after)
        except Conflict as error:
            raise TooBusy(f"{error}; nothing was changed: stop dispatchers, and repeat") from error


def planned(
    path: Path, store: str, to: str, table: str | None, dead_letters: str | None
) -> Iterator[Rewind]:
    """Plan for each table with rows that differ from the log; tables of dead letters come first.

    Raises :class:`~lakelog_lake.errors.TableMaintenanceError`.
    """
    for each in all_opened(to, table, dead_letters):
        start = _first_unknown(path, store, each)
        for one in reversed(each.each) if start is not None else ():
            before = one.position(store)
            if before is not None:
                yield _rewind(path, store, one, before, start or 0)


def _first_unknown(path: Path, store: str, opened: OpenTable) -> int | None:
    """The physical offset of the first row that differs from the log; ``None`` if none does."""
    found = verify_here(VerifyRequest(path, store, opened.whole, Chosen()))
    if found.differences.not_listed:
        raise TooManyDifferences(opened.table.name, path)
    places = [each.start for each in found.differences.each() if each.kind in _NOT_IN_LOG]
    positions = (each.position(store) for each in opened.each)
    with lakelog.open(path, mode="read") as log:
        ends = [
            each.end
            for each in positions
            if each is not None and bounds_of(log, each, opened.table.name).problem is not None
        ]
    return min((*places, *ends), default=None)


def _rewind(path: Path, store: str, table: LandedTable, before: Position, start: int) -> Rewind:
    import pyarrow as pa
    import pyarrow.compute as pc

    gone: list[pa.RecordBatch] = []

    def kept() -> Iterator[pa.RecordBatch]:
        for batch in table.batches(store, LAST_ROWS):
            is_gone = pc.greater_equal(batch.column("physical_offset"), start)
            gone.append(batch.filter(is_gone).select(LAST_ROWS[1:5]))
            yield batch.filter(pc.invert(is_gone))

    with readable(table.name):
        last = positions_of(kept(), table.name).get(store)
    if last is None:
        with lakelog.open(path, mode="read") as log:
            last = Position(log.min_offset, log.min_offset)
    after = Position(last.end, last.end, last.last, last.next_offsets, chosen=before.chosen)
    queues = tuple(_by_queue(pa.Table.from_batches(gone))) if gone else ()
    return Rewind(table, store, before, after, start, queues)


def _by_queue(rows: Any) -> Iterable[RewoundRows]:
    grouped = rows.group_by(["topic", "queue_id"]).aggregate(
        [
            ("queue_offset", "min"),
            ("queue_offset", "max"),
            ("physical_offset", "min"),
            ("physical_offset", "count"),
        ]
    )
    names = ("queue_offset_min", "queue_offset_max", "physical_offset_min", "physical_offset_count")
    found = grouped.select(["topic", "queue_id", *names]).to_pylist()
    return sorted((RewoundRows(*each.values()) for each in found), key=lambda each: each.start)
